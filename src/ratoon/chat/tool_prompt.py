"""Tools for chat templates that know none: written into the messages, in the words of a `ToolFormat`.

A template that reads tools itself is left alone, but for ids of calls in a shape that it refuses.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ratoon.chat.tool_format import ToolFormat
from ratoon.chat.tools import Tool, arguments_mapping

Message = Mapping[str, Any]


def with_fitting_ids(messages: Sequence[Message], form: ToolFormat) -> Sequence[Message]:
    """Return the messages with ids of calls as long as the family's templates want them."""
    if not form.id_length:
        return messages
    return [_with_fitting_ids(message, form.id_length) for message in messages]


def with_tools_written(
    messages: Sequence[Message], tools: Sequence[Tool], form: ToolFormat
) -> Sequence[Message]:
    """Return messages in which tools, calls and results are text."""
    written: list[dict[str, Any]] = []
    for message in messages:
        if message.get("role") == "tool":
            _add_result(written, message)
        elif message.get("tool_calls"):
            written.append(_with_calls(message, form))
        else:
            written.append(dict(message))
    if tools:
        head = written.pop(0) if written and written[0].get("role") in ("system", "developer") else {}
        texts = [text for text in (_text(head.get("content")), _instructions(tools, form)) if text]
        written.insert(0, {"role": "system", "content": "\n\n".join(texts)})
    return written


def _instructions(tools: Sequence[Tool], form: ToolFormat) -> str:
    lines = [json.dumps(tool.for_template()["function"], ensure_ascii=False) for tool in tools]
    example = form.write([("NAME", {"ARGUMENT": "VALUE"})])
    return "\n".join(
        ["You can call these functions:", *lines, "To call one, answer with nothing but:", example]
    )


def _with_calls(message: Message, form: ToolFormat) -> dict[str, Any]:
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function", call)
        calls.append((str(function.get("name")), arguments_mapping(function.get("arguments", {}))))
    texts = [text for text in (_text(message.get("content")), form.write(calls)) if text]
    return {"role": message.get("role"), "content": "\n".join(texts)}


def _add_result(written: list[dict[str, Any]], message: Message) -> None:
    """Write a result as the user's words; results that follow each other stand in one message."""
    text = f"<tool_response>\n{_text(message.get('content'))}\n</tool_response>"
    if written and written[-1].get("is_result"):
        written[-1]["content"] += "\n" + text
    else:
        written.append({"role": "user", "content": text, "is_result": True})


def _text(content: Any) -> str:
    if isinstance(content, str) or content is None:
        return content or ""
    return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))


def _with_fitting_ids(message: Message, length: int) -> Message:
    fitted = dict(message)
    if isinstance(called := message.get("tool_call_id"), str):
        fitted["tool_call_id"] = _fitting_id(called, length)
    if calls := message.get("tool_calls"):
        fitted["tool_calls"] = [
            {**call, "id": _fitting_id(call["id"], length)} if isinstance(call.get("id"), str) else call
            for call in calls
        ]
    return fitted


def _fitting_id(call_id: str, length: int) -> str:
    """Return an id as it is if it fits, else one of the right length that follows from it."""
    if len(call_id) == length and call_id.isalnum():
        return call_id
    return hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:length]
