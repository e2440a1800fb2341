"""The same conversations in every dialect: the same tokens, the same answers, and blocks in common."""

import json
from typing import Any

import pytest

from tests.support.fake_server import FakeServer

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
DESCRIPTION = "Returns the weather of a city."
SYSTEM = "You know the weather everywhere, and you say it in a few words. " * 2
ARGUMENTS = {"city": "Zürich"}
Turns = list[tuple[str, Any]]
"""`user`, `assistant` and `system` with a text, `call` with an id and `result` with an id and a text."""

CONVERSATIONS: dict[str, Turns] = {
    "one question": [("user", "Hello")],
    "a system prompt": [("system", SYSTEM), ("user", "Hello")],
    "several turns": [("system", SYSTEM), ("user", "Hello"), ("assistant", "Hi."), ("user", "Well?")],
    "a call": [("system", SYSTEM), ("user", "Weather?"), ("call", "call_1"), ("result", ("call_1", "sunny"))],
    "text and a call": [
        ("user", "Weather?"),
        ("assistant", "Let me see."),
        ("call", "call_1"),
        ("result", ("call_1", "sunny")),
        ("assistant", "Sunny."),
        ("user", "And tomorrow?"),
    ],
    "calls in parallel": [
        ("user", "Weather?"),
        ("call", "call_1"),
        ("call", "call_2"),
        ("result", ("call_1", "sunny")),
        ("result", ("call_2", "rain")),
        ("user", "So?"),
    ],
}


def chat_body(turns: Turns) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    for kind, what in turns:
        if kind == "call":
            if messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            function: dict[str, Any] = {"name": "get_weather", "arguments": json.dumps(ARGUMENTS)}
            call: dict[str, Any] = {"id": what, "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "result":
            messages.append({"role": "tool", "tool_call_id": what[0], "content": what[1]})
        else:
            messages.append({"role": kind, "content": what})
    function = {"name": "get_weather", "description": DESCRIPTION, "parameters": CITY}
    return {"messages": messages, "tools": [{"type": "function", "function": function}]}


def messages_body(turns: Turns) -> dict[str, Any]:
    messages: list[dict[str, Any]] = []
    system: list[dict[str, Any]] = []
    for kind, what in turns:
        block: dict[str, Any] = {"type": "text", "text": what}
        role = "assistant" if kind in ("assistant", "call") else "user"
        if kind == "call":
            block = {"type": "tool_use", "id": what, "name": "get_weather", "input": ARGUMENTS}
        elif kind == "result":
            content = [{"type": "text", "text": what[1]}]
            block = {"type": "tool_result", "tool_use_id": what[0], "content": content}
        if kind == "system":
            system.append({**block, "cache_control": {"type": "ephemeral"}})
        elif messages and messages[-1]["role"] == role:
            messages[-1]["content"].append(block)
        else:
            messages.append({"role": role, "content": [block]})
    tool = {"name": "get_weather", "description": DESCRIPTION, "input_schema": CITY}
    return {"model": "claude-any", "messages": messages, "tools": [tool]} | (
        {"system": system} if system else {}
    )


def responses_body(turns: Turns) -> dict[str, Any]:
    body: dict[str, Any] = {"input": [], "tools": []}
    for kind, what in turns:
        if kind == "system":
            body["instructions"] = what
        elif kind == "call":
            arguments = json.dumps(ARGUMENTS)
            body["input"].append(
                {"type": "function_call", "call_id": what, "name": "get_weather", "arguments": arguments}
            )
        elif kind == "result":
            output = {"call_id": what[0], "output": what[1]}
            body["input"].append({"type": "function_call_output", **output})
        else:
            part = {"type": "output_text" if kind == "assistant" else "input_text", "text": what}
            body["input"].append({"role": kind, "content": [part]})
    tool = {"type": "function", "name": "get_weather", "description": DESCRIPTION, "parameters": CITY}
    return {**body, "tools": [tool, {"type": "web_search"}]}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_has_the_same_tokens_in_every_dialect(real_server: FakeServer, name: str) -> None:
    turns = CONVERSATIONS[name]
    tokenized = real_server.post("/tokenize", chat_body(turns)).json["count"]
    counted = real_server.post("/v1/messages/count_tokens", messages_body(turns)).json["input_tokens"]
    assert counted == tokenized
    real_server.request("POST", "/cache/reset", key="root")
    chat = real_server.post("/v1/chat/completions", {**chat_body(turns), "max_tokens": 1}).json["usage"]
    message = real_server.post("/v1/messages", {**messages_body(turns), "max_tokens": 1}).json["usage"]
    response = real_server.post("/v1/responses", {**responses_body(turns), "max_output_tokens": 1}).json[
        "usage"
    ]
    assert chat["prompt_tokens"] == response["input_tokens"] == tokenized
    assert chat["prompt_tokens_details"]["cached_tokens"] == 0
    found = min(tokenized // 16 * 16, tokenized - 1)
    assert message["cache_read_input_tokens"] == found
    assert response["input_tokens_details"]["cached_tokens"] == found
    assert sum(message[f"{kind}input_tokens"] for kind in ("", "cache_read_", "cache_creation_")) == tokenized


def test_every_dialect_gives_the_same_answer(real_server: FakeServer) -> None:
    turns, limits = CONVERSATIONS["a system prompt"], {"temperature": 0}
    chat = real_server.post(
        "/v1/chat/completions", {**chat_body(turns), **limits, "max_tokens": 12, "tool_choice": "none"}
    ).json["choices"][0]["message"]["content"]
    message = real_server.post(
        "/v1/messages",
        {**messages_body(turns), **limits, "max_tokens": 12, "tool_choice": {"type": "none"}},
    ).json["content"][0]["text"]
    response = real_server.post(
        "/v1/responses",
        {**responses_body(turns), **limits, "max_output_tokens": 12, "tool_choice": "none"},
    ).json["output"][0]["content"][0]["text"]
    assert chat == message == response
