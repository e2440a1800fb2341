"""Messages as callers give them, made into what a chat template expects.

Templates are written for the `transformers` library: arguments of tool calls are mappings, contents are
texts, or lists of parts where the template walks them. What else a caller may send by OpenAI's API is
brought into that shape here, for the library and for the server alike.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ratoon.errors import ChatTemplateError

Message = Mapping[str, Any]

COMMON_ROLES = ("system", "user", "assistant", "tool")
TEXT_PARTS = ("text", "input_text", "output_text")


def prepared(
    messages: Sequence[Message], *, takes_parts: bool, names_role: Callable[[str], bool]
) -> list[dict[str, Any]]:
    """Return the messages for a template.

    `takes_parts` tells that it walks a list of parts itself; else they are joined with newlines.
    `names_role` tells which roles it speaks of. Raises `ChatTemplateError` where a message has a role that
    the template does not know, or a part that is no text.
    """
    return [_prepared(message, takes_parts, names_role) for message in messages]


def _prepared(message: Message, takes_parts: bool, names_role: Callable[[str], bool]) -> dict[str, Any]:
    ready = dict(message)
    role = message.get("role")
    if role == "developer" and not names_role("developer"):
        ready["role"] = "system"
    elif isinstance(role, str) and role not in COMMON_ROLES and not names_role(role):
        raise ChatTemplateError(
            f"There is no role {role!r} for this model.", hint=f"There are: {', '.join(COMMON_ROLES)}."
        )
    content = message.get("content")
    if content is None:
        ready["content"] = ""
    elif isinstance(content, list | tuple):
        texts = [_text_of(part) for part in content]
        parts = [{"type": "text", "text": text} for text in texts]
        ready["content"] = parts if takes_parts else "\n".join(texts)
    calls = message.get("tool_calls")
    if isinstance(calls, list | tuple):
        ready["tool_calls"] = [_with_mapping(call) for call in calls]
    return ready


def _text_of(part: object) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if isinstance(part, Mapping) and kind in TEXT_PARTS and isinstance(part.get("text"), str):
        return str(part["text"])
    raise ChatTemplateError(
        "A message has a part that is not text; this model takes text only."
        if kind is None
        else f"A message has a part of the type {kind!r}; this model takes text only."
    )


def _with_mapping(call: Any) -> Any:
    """Return a tool call whose arguments are a mapping, if they were the JSON text of one."""
    if not isinstance(call, Mapping):
        return call
    if isinstance(function := call.get("function"), Mapping):
        return {**call, "function": _with_mapping(function)}
    arguments = call.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return call
    return {**call, "arguments": value} if isinstance(value, dict) else call
