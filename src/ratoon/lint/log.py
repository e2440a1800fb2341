"""Reads requests from JSON lines: OpenAI's and Anthropic's, batches of them, and traces.

Known are chat and text completions, Responses, and Anthropic's messages. A line is a request body, or an
object that has one under `body`, `request` or `params` (batch files, logs). What a body holds that no model
reads is skipped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ratoon.errors import UsageError
from ratoon.lint.prompt import Piece, Prompt, Role

ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL_RESULT,
    "function": Role.TOOL_RESULT,
}
ENVELOPES = ("body", "request", "params")
CONVERSATIONS = ("conversation", "conversation_id", "session_id", "chat_id")

Object = Mapping[str, Any]


def read_log(lines: Iterable[str], name: str, num_before: int = 0) -> Iterator[Prompt]:
    """Yield the prompts of a file's lines, numbered after `num_before` others. Raises `UsageError`.

    Empty lines are skipped.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield read_request(json.loads(line), num_before + number)
            except (ValueError, RecursionError) as error:
                raise UsageError(
                    f"{name}, line {number}, is no request: {error}.",
                    hint="Each line is a JSON object with messages, a prompt, or an input.",
                ) from error


def read_request(value: object, line: int = 0) -> Prompt:
    """Return the prompt of a request. Raises `ValueError` where there is none."""
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    conversation = next((str(value[key]) for key in CONVERSATIONS if value.get(key)), None)
    body: Object = next((value[key] for key in ENVELOPES if isinstance(value.get(key), dict)), value)
    pieces = (*_tools(body), *_instructions(body), *_input(body))
    if not pieces:
        raise ValueError("it has no messages, prompt or input")
    return Prompt(pieces, line, conversation)


def _tools(body: Object) -> Iterator[Piece]:
    for key in ("tools", "functions"):
        for tool in _list(body, key):
            yield Piece(Role.TOOLS, json.dumps(tool, ensure_ascii=False))


def _instructions(body: Object) -> Iterator[Piece]:
    for key in ("system", "instructions"):
        if body.get(key):
            yield from _content(body[key], Role.SYSTEM)


def _input(body: Object) -> Iterator[Piece]:
    if "messages" in body:
        for message in _list(body, "messages"):
            yield from _message(message)
        return
    for key in ("prompt", "input"):
        value = body.get(key)
        if isinstance(value, str):
            yield Piece(Role.TEXT, value)
        elif isinstance(value, list):
            for item in value:
                yield from _message(item)


def _message(message: object) -> Iterator[Piece]:
    if not isinstance(message, dict):
        raise ValueError("a message is not an object")
    role = ROLES.get(str(message.get("role", "user")), Role.USER)
    if message.get("type") in ("function_call_output", "function_call"):
        key = "output" if message["type"] == "function_call_output" else "arguments"
        yield Piece(Role.TOOL_RESULT if key == "output" else Role.ASSISTANT, str(message.get(key, "")))
        return
    for key in ("reasoning_content", "reasoning", "thinking"):
        if isinstance(message.get(key), str):
            yield Piece(Role.REASONING, message[key])
    if message.get("content") is not None:
        yield from _content(message["content"], role)
    for call in _list(message, "tool_calls"):
        yield Piece(role, json.dumps(call, ensure_ascii=False))


def _content(content: object, role: Role) -> Iterator[Piece]:
    if isinstance(content, str):
        yield Piece(role, content)
        return
    if not isinstance(content, list):
        raise ValueError("a content is neither a text nor a list of parts")
    for part in content:
        if isinstance(part, str):
            yield Piece(role, part)
        elif not isinstance(part, dict):
            raise ValueError("a part of a content is not an object")
        elif part.get("type") == "thinking":
            yield Piece(Role.REASONING, str(part.get("thinking", "")))
        elif part.get("type") == "tool_result":
            yield from _content(part.get("content") or "", Role.TOOL_RESULT)
        elif isinstance(part.get("text"), str):
            yield Piece(role, part["text"])
        else:
            yield Piece(role, json.dumps(part, ensure_ascii=False))


def _list(value: Object, key: str) -> list[Any]:
    found = value.get(key) or []
    if not isinstance(found, list):
        raise ValueError(f"{key} is not a list")
    return found
