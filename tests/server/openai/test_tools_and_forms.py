"""Structured outputs and tool calls over HTTP, with a real model."""

import json
from typing import Any

import jsonschema
import pytest

from tests.support.fake_server import FakeServer

CHAT = "/v1/chat/completions"
CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"enum": [1, 2, 3]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": CITY}}
NOW = {"type": "function", "function": {"name": "now"}}
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Weather in Rome?"}], "max_tokens": 80, "seed": 3
}  # fmt: skip


def chat(server: FakeServer, **fields: Any) -> Any:
    reply = server.post(CHAT, {**BODY, **fields})
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_response_format_is_kept(real_server: FakeServer, temperature: float) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY, "strict": True}}
    choice = chat(real_server, response_format=form, temperature=temperature)
    assert choice["finish_reason"] == "stop"
    jsonschema.validate(json.loads(choice["message"]["content"]), CITY)


def test_completions_take_forms_too(real_server: FakeServer) -> None:
    answer = real_server.complete("Yes or no?", structured_outputs={"choice": ["yes", "no"]})
    assert answer["choices"][0]["text"] in ("yes", "no")
    answer = real_server.complete("JSON:", response_format={"type": "json_object"}, max_tokens=60)
    assert answer["choices"][0]["text"].startswith("{")


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "function": {"name": "get_weather"}}],
    ids=["required", "named"],
)
def test_a_call_that_must_be_made_has_valid_arguments(real_server: FakeServer, choice: object) -> None:
    made = chat(real_server, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False, temperature=1)
    assert made["finish_reason"] == ("tool_calls" if choice == "required" else "stop")
    assert made["message"]["content"] is None
    [call] = made["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    jsonschema.validate(json.loads(call["function"]["arguments"]), CITY)


def test_a_stream_makes_the_same_call(real_server: FakeServer) -> None:
    fields = {"tools": [TOOL, NOW], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 1}
    whole = chat(real_server, **fields)
    chunks = [event["choices"][0] for event in real_server.events(CHAT, {**BODY, **fields})]
    calls = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", ())]
    function = whole["message"]["tool_calls"][0]["function"]
    assert calls[0]["function"]["name"] == function["name"]
    assert "".join(call["function"]["arguments"] for call in calls) == function["arguments"]
    assert chunks[-1]["finish_reason"] == "tool_calls"


def test_a_call_comes_back_as_history_and_its_tokens_are_found(real_server: FakeServer) -> None:
    messages = [{"role": "system", "content": "Be brief. " * 20}, *BODY["messages"]]
    fields = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "temperature": 0}
    first = real_server.post(CHAT, {**BODY, **fields, "messages": messages}).json
    message = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"}
    again = {**BODY, **fields, "messages": [*messages, message, result]}
    second = real_server.post(CHAT, again).json["usage"]
    known = first["usage"]["total_tokens"] - 1  # nothing was computed after the last token
    assert second["prompt_tokens_details"]["cached_tokens"] == known // 16 * 16


def test_a_schema_that_cannot_be_held_is_refused_or_told(real_server: FakeServer) -> None:
    odd = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    function = {"name": "odd", "parameters": odd}
    tool = {"type": "function", "function": function}
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": odd}}
    strict = {"type": "function", "function": {**function, "strict": True}}
    for fields in (
        {"response_format": form},
        {"tools": [tool], "tool_choice": "required"},
        {"tools": [strict]},
    ):
        reply = real_server.post(CHAT, {**BODY, **fields})
        assert reply.status == 400
        assert reply.json["error"]["code"] == "invalid_grammar"
        assert "uniqueItems" in reply.json["error"]["message"]
    reply = real_server.post(CHAT, {**BODY, "tools": [tool], "max_tokens": 4})
    assert reply.status == 200
    assert "uniqueItems" in reply.headers["warning"]


def test_log_probabilities_of_a_form_are_finite(real_server: FakeServer) -> None:
    form = {"choice": ["red", "green"]}
    choice = chat(real_server, structured_outputs=form, logprobs=True, top_logprobs=5, temperature=0)
    for entry in choice["logprobs"]["content"]:
        assert -100 < entry["logprob"] <= 0
        assert all(-100 < other["logprob"] <= 0 for other in entry["top_logprobs"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools.0.function.name"),
    ],
)
def test_what_cannot_be_done_names_the_field(server: FakeServer, fields: dict[str, Any], param: str) -> None:
    reply = server.post(CHAT, {**BODY, **fields})
    assert (reply.status, reply.json["error"]["param"]) == (400, param)
