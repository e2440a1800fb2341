"""Items: what input and output of a response consist of, and the messages that they stand for."""

from collections.abc import Mapping, Sequence
from typing import Any

from ratoon.server.generation.request import Json
from ratoon.text.messages import TEXT_PARTS

ROLES = ("user", "assistant", "system", "developer")


def checked_items(value: object) -> object:
    """Check an input: a text, or a list of items. Raises `ValueError`."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError("An input is a text or a list of items.")
    for item in value:
        _check(item)
    return value


def unknown_kinds(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the types of items that mean nothing to a model of ours, and are passed over."""
    known = ("message", "function_call", "function_call_output", "reasoning")
    return sorted({kind for item in items if (kind := _kind(item)) not in known})


def messages_of(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages that items stand for.

    Calls belong to the assistant's message before them, and reasoning to the one after it.
    """
    messages: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for item in items:
        match _kind(item):
            case "message":
                message = {"role": item["role"], "content": _plain(item.get("content"))}
                if item["role"] == "assistant" and thoughts:
                    message["reasoning_content"] = "\n".join(thoughts)
                thoughts = []
                messages.append(message)
            case "reasoning":
                thoughts += [part["text"] for part in item.get("content") or () if "text" in part]
            case "function_call":
                _add_call(messages, item, thoughts)
                thoughts = []
            case "function_call_output":
                content = _plain(item["output"])
                messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": content})
    return messages


def message_item(item_id: str, text: str, status: str) -> Json:
    """Return a message of one text."""
    content = [] if not text and status == "in_progress" else [text_part(text)]
    return {"type": "message", "id": item_id, "status": status, "role": "assistant", "content": content}


def reasoning_item(item_id: str, text: str) -> Json:
    """Return reasoning."""
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return {"type": "reasoning", "id": item_id, "summary": [], "content": content}


def call_item(item_id: str, call_id: str, name: str, arguments: str, status: str) -> Json:
    """Return a call of a function."""
    call = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
    return {**call, "arguments": arguments, "status": status}


def text_part(text: str) -> Json:
    """Return the part of a message that is text."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _kind(item: Mapping[str, Any]) -> str:
    """Return the type of an item; messages may leave it out."""
    return str(item.get("type") or "message")


def _check(item: Mapping[str, Any]) -> None:
    match _kind(item):
        case "message":
            if item.get("role") not in ROLES:
                raise ValueError(f"A message has one of the roles {', '.join(ROLES)}.")
            _check_content(item.get("content"))
        case "function_call":
            if not all(isinstance(item.get(name), str) for name in ("call_id", "name", "arguments")):
                raise ValueError("A function_call has call_id, name and arguments, which are texts.")
        case "function_call_output":
            if not isinstance(item.get("call_id"), str):
                raise ValueError("A function_call_output has a call_id, which is a text.")
            _check_content(item.get("output"))
        case "reasoning":
            content = item.get("content") or []
            if not isinstance(content, list) or not all(
                isinstance(part, dict) and isinstance(part.get("text", ""), str) for part in content
            ):
                raise ValueError("The content of reasoning is a list of parts with a text.")


def _check_content(content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise ValueError("Content is a text or a list of parts.")
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str):
            raise ValueError("A part of a content is an object with a type.")
        if kind not in (*TEXT_PARTS, "refusal"):
            raise ValueError(f"A part of the type {kind!r} cannot be read; this model takes text only.")
        if not isinstance(part.get("refusal" if kind == "refusal" else "text"), str):
            raise ValueError(f"A part of the type {kind!r} needs a text.")


def _plain(content: Any) -> str | list[dict[str, str]]:
    """Return one text as it is, several as parts."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = [part.get("text", part.get("refusal", "")) for part in content]
    if len(texts) < 2:
        return texts[0] if texts else ""
    return [{"type": "text", "text": text} for text in texts]


def _add_call(messages: list[dict[str, Any]], item: Mapping[str, Any], thoughts: Sequence[str]) -> None:
    if not messages or messages[-1]["role"] != "assistant":
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        if thoughts:
            message["reasoning_content"] = "\n".join(thoughts)
        messages.append(message)
    function = {"name": item["name"], "arguments": item["arguments"]}
    call = {"id": item["call_id"], "type": "function", "function": function}
    messages[-1].setdefault("tool_calls", []).append(call)
