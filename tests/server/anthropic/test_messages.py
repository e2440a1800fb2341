"""Anthropic's Messages API, as its clients and coding agents use it."""

import json
from typing import Any

import pytest

from tests.support.fake_server import FakeServer

PATH = "/v1/messages"
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"name": "get_weather", "description": "Weather", "input_schema": CITY}
BODY: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 4,
    "messages": [{"role": "user", "content": "Hello"}],
}


def events(data: bytes) -> list[Any]:
    """Return the events of a stream; each is named by its type."""
    found = []
    for block in data.decode().split("\n\n")[:-1]:
        name, body = block.split("\n")
        found.append(json.loads(body.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def test_a_message_is_answered_with_blocks(server: FakeServer) -> None:
    reply = server.post(PATH, BODY)
    assert reply.status == 200, reply.body
    message = reply.json
    assert message["id"].startswith("msg_")
    assert reply.headers["request-id"] == message["id"]
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", BODY["model"])
    [block] = message["content"]
    assert block["type"] == "text"
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    usage = message["usage"]
    assert usage["output_tokens"] == 4
    prompt = sum(usage[f"{kind}input_tokens"] for kind in ("", "cache_creation_", "cache_read_"))
    assert prompt == server.post(f"{PATH}/count_tokens", BODY).json["input_tokens"]


def test_a_stream_has_the_documented_events(server: FakeServer) -> None:
    whole = server.post(PATH, {**BODY, "temperature": 0}).json
    reply = server.post(PATH, {**BODY, "temperature": 0, "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    first, ping, start, *deltas, stop, delta, last = events(reply.body)
    assert [event["type"] for event in (first, ping, start, stop, delta, last)] == [
        "message_start", "ping", "content_block_start", "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert first["message"]["content"] == []
    assert first["message"]["usage"]["cache_read_input_tokens"] == whole["usage"]["cache_read_input_tokens"]
    assert start["content_block"] == {"type": "text", "text": ""}
    assert {event["index"] for event in (start, *deltas, stop)} == {0}
    assert "".join(event["delta"]["text"] for event in deltas) == whole["content"][0]["text"]
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == 4


def test_usage_tells_what_was_read_from_the_cache_and_what_is_new_in_it(real_server: FakeServer) -> None:
    long = {**BODY, "max_tokens": 1, "system": "One and the same system prompt. " * 12}
    real_server.request("POST", "/cache/reset", key="root")
    first, second = (real_server.post(PATH, long).json["usage"] for _ in range(2))
    total = sum(first[f"{kind}input_tokens"] for kind in ("", "cache_creation_", "cache_read_"))
    assert first["cache_creation_input_tokens"] == total // 16 * 16
    assert first["cache_read_input_tokens"] == second["cache_creation_input_tokens"] == 0
    assert second["cache_read_input_tokens"] == total // 16 * 16
    stream = events(real_server.post(PATH, {**long, "stream": True}).body)
    assert stream[0]["message"]["usage"]["cache_read_input_tokens"] == total // 16 * 16


def test_a_stop_sequence_is_named(real_server: FakeServer) -> None:
    body = {**BODY, "max_tokens": 60, "temperature": 0, "stop_sequences": [" "]}
    message = real_server.post(PATH, body).json
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", " ")


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_tool_that_must_be_used_is_used(real_server: FakeServer, choice: dict[str, Any]) -> None:
    body = {**BODY, "max_tokens": 60, "tools": [TOOL], "tool_choice": choice, "temperature": 0}
    body["tool_choice"] = {**choice, "disable_parallel_tool_use": True}
    message = real_server.post(PATH, body).json
    [block] = message["content"]
    assert (block["type"], block["name"]) == ("tool_use", "get_weather")
    assert block["input"].keys() == {"city"}
    assert message["stop_reason"] == "tool_use"
    stream = events(real_server.post(PATH, {**body, "stream": True}).body)
    start = next(event for event in stream if event["type"] == "content_block_start")
    assert start["content_block"]["input"] == {}
    deltas = [event["delta"] for event in stream if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} == {"input_json_delta"}
    assert json.loads("".join(delta["partial_json"] for delta in deltas)) == block["input"]
    assert stream[-2]["delta"]["stop_reason"] == "tool_use"


def test_what_coding_agents_send_is_taken(real_server: FakeServer) -> None:
    body = {
        **BODY,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc;"},
            {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "List", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "system", "content": "A reminder."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I list.", "signature": "abc"},
                    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "no"},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search", "max_uses": 5}],
        "metadata": {"user_id": "someone"},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "context_management": {"edits": []},
    }
    reply = real_server.request("POST", f"{PATH}?beta=true", body)
    assert reply.status == 200, reply.body
    assert reply.headers["warning"] == '299 ratoon "ignored tools of the types: web_search_20250305"'


def test_a_billing_header_does_not_change_the_prompt(server: FakeServer) -> None:
    def count(system: object) -> int:
        return int(server.post(f"{PATH}/count_tokens", {**BODY, "system": system}).json["input_tokens"])

    header = "x-anthropic-billing-header: cch={};"
    assert count(f"{header.format(1)}\nBe brief.") == count("Be brief.")
    blocks = [{"type": "text", "text": header.format("x" * 40)}, {"type": "text", "text": "Be brief."}]
    assert count(blocks) == count("Be brief.")


def test_an_answer_goes_on_from_the_assistants_last_words(real_server: FakeServer) -> None:
    messages = [*BODY["messages"], {"role": "assistant", "content": "My name is"}]
    reply = real_server.post(PATH, {**BODY, "messages": messages, "temperature": 0})
    assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    ("fields", "status", "kind", "said"),
    [
        ({"max_tokens": 0}, 400, "invalid_request_error", "max_tokens"),
        ({"model": "unknown"}, 404, "not_found_error", "unknown"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            400,
            "invalid_request_error",
            "'image' cannot be read",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            400,
            "invalid_request_error",
            "lacks",
        ),
        ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error", "no tools"),
        ({"temperature": -1}, 400, "invalid_request_error", "temperature"),
        ({"messages": []}, 400, "invalid_request_error", "messages"),
    ],
)
def test_errors_have_anthropics_shape(
    server: FakeServer, fields: dict[str, Any], status: int, kind: str, said: str
) -> None:
    reply = server.post(PATH, {**BODY, **fields})
    assert reply.status == status
    assert reply.json["type"] == "error"
    assert reply.json["error"]["type"] == kind
    assert said in reply.json["error"]["message"]
