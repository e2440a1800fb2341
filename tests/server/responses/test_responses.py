"""OpenAI's Responses API, as its clients and coding agents use it."""

import json
from typing import Any

import pytest

from ratoon.server.http.errors import ApiError
from ratoon.server.responses.store import ResponseStore, StoredResponse
from tests.support.fake_server import FakeServer

PATH = "/v1/responses"
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather",
    "parameters": CITY,
    "strict": True,
}
BODY: dict[str, Any] = {"model": "fake", "input": "Hello", "max_output_tokens": 4, "temperature": 0}


def events(data: bytes) -> list[Any]:
    """Return the events of a stream, which are numbered."""
    found = []
    for number, block in enumerate(data.decode().split("\n\n")[:-1]):
        name, body = block.split("\n")
        found.append(json.loads(body.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
        assert found[-1]["sequence_number"] == number
    return found


def test_an_input_is_answered_with_items(server: FakeServer) -> None:
    reply = server.post(PATH, BODY)
    assert reply.status == 200, reply.body
    response = reply.json
    assert response["id"].startswith("resp_")
    assert (response["object"], response["status"]) == ("response", "incomplete")
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    [item] = response["output"]
    assert (item["type"], item["role"]) == ("message", "assistant")
    assert item["content"][0]["type"] == "output_text"
    usage = response["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["input_tokens_details"] == {"cached_tokens": 0}


def test_a_stream_has_the_documented_events(server: FakeServer) -> None:
    whole = server.post(PATH, BODY).json
    stream = events(server.post(PATH, {**BODY, "stream": True}).body)
    kinds = [event["type"].removeprefix("response.") for event in stream]
    deltas = [event["delta"] for event in stream if event["type"] == "response.output_text.delta"]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[4 : 4 + len(deltas)] == ["output_text.delta"] * len(deltas)
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    text = whole["output"][0]["content"][0]["text"]
    assert "".join(deltas) == stream[-4]["text"] == text
    assert stream[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert stream[-2]["item"]["id"] == stream[2]["item"]["id"]


def test_a_response_goes_on_from_an_earlier_one(server: FakeServer) -> None:
    first = server.post(PATH, {**BODY, "instructions": "Be brief."}).json
    again = {**BODY, "previous_response_id": first["id"], "input": "And?", "instructions": "Be brief."}
    second = server.post(PATH, again)
    assert second.status == 200, second.body
    text = first["output"][0]["content"][0]["text"]
    items = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": text}]
    full = {**BODY, "instructions": "Be brief.", "input": [*items, {"role": "user", "content": "And?"}]}
    assert second.json["usage"]["input_tokens"] == server.post(PATH, full).json["usage"]["input_tokens"]
    assert server.get(f"{PATH}/{first['id']}").json == first
    assert server.request("DELETE", f"{PATH}/{first['id']}").json["deleted"]
    assert server.post(PATH, again).status == 404


def test_what_shall_not_be_stored_is_not(server: FakeServer) -> None:
    first = server.post(PATH, {**BODY, "store": False}).json
    reply = server.post(PATH, {**BODY, "previous_response_id": first["id"]})
    assert (reply.status, reply.json["error"]["param"]) == (404, "previous_response_id")


def test_calls_and_their_results(real_server: FakeServer) -> None:
    body = {**BODY, "max_output_tokens": 60, "tools": [TOOL], "tool_choice": "required"}
    body["parallel_tool_calls"] = False
    first = real_server.post(PATH, body).json
    [call] = first["output"]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert json.loads(call["arguments"]).keys() == {"city"}
    stream = events(real_server.post(PATH, {**body, "stream": True}).body)
    deltas = [event["delta"] for event in stream if event["type"].endswith("arguments.delta")]
    assert "".join(deltas) == call["arguments"]
    assert stream[-1]["type"] == "response.completed"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    items = [{"role": "user", "content": "Hello"}, call, result]
    second = real_server.post(PATH, {**BODY, "tools": [TOOL], "input": items})
    assert second.status == 200, second.body
    known = first["usage"]["total_tokens"] - 1
    assert second.json["usage"]["input_tokens_details"]["cached_tokens"] == known // 16 * 16


def test_a_text_format_is_kept(real_server: FakeServer) -> None:
    form = {"type": "json_schema", "name": "c", "schema": CITY}
    response = real_server.post(PATH, {**BODY, "max_output_tokens": 60, "text": {"format": form}}).json
    assert response["status"] == "completed"
    assert json.loads(response["output"][0]["content"][0]["text"]).keys() == {"city"}


def test_what_coding_agents_send_is_taken(server: FakeServer) -> None:
    reply = server.post(
        PATH,
        {
            **BODY,
            "input": [
                {
                    "type": "message",
                    "role": "developer",
                    "content": [{"type": "input_text", "text": "Rules."}],
                },
                {"type": "reasoning", "summary": [], "encrypted_content": "x", "content": None},
                {"type": "local_shell_call", "call_id": "1", "action": {}},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]},
            ],
            "tools": [{"type": "local_shell"}, {"type": "custom", "name": "patch"}],
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "key",
            "store": False,
            "reasoning": {"effort": "medium", "summary": "auto"},
        },
    )
    assert reply.status == 200, reply.body
    assert "tools of the types: custom, local_shell" in reply.headers["warning"]
    assert "items of the types: local_shell_call" in reply.headers["warning"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, None),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"type": "function_call"}]}, "input"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"background": True}, None),
        ({"text": {"format": {"type": "xml"}}}, None),
        ({"tools": [{"type": "function"}]}, None),
        ({"previous_response_id": "resp_unknown"}, "previous_response_id"),
    ],
)
def test_what_cannot_be_done_is_refused(
    server: FakeServer, fields: dict[str, Any], param: str | None
) -> None:
    reply = server.post(PATH, {**BODY, **fields})
    assert reply.status in (400, 404)
    assert reply.json["error"]["param"] == param


def test_the_oldest_responses_are_forgotten_and_tenants_do_not_see_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ratoon.server.responses.store.MAX_RESPONSES", 2)
    store = ResponseStore()
    for name in ("a", "b", "c"):
        store.put("one", name, StoredResponse({"id": name}, [], 10))
    assert store.get("one", "c").body == {"id": "c"}
    for tenant, name in (("one", "a"), ("other", "b")):
        with pytest.raises(ApiError):
            store.get(tenant, name)
    monkeypatch.setattr("ratoon.server.responses.store.MAX_BYTES", 15)
    store.put("one", "d", StoredResponse({"id": "d"}, [], 10))
    with pytest.raises(ApiError):
        store.get("one", "c")


def test_endpoints_without_a_model_say_so(server: FakeServer) -> None:
    reply = server.post("/v1/embeddings", {"input": "x"})
    assert (reply.status, reply.json["error"]["code"]) == (404, "not_implemented")
