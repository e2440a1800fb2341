"""`MessagesBody`: the body of `/v1/messages`, and how it becomes a `ChatRequest`.

What coding agents really send is taken: system messages among the others, results of tools as text or blocks,
thinking that is echoed, tools of the service itself (which are passed over with a warning).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator

from ratoon.chat.tools import ANY_ARGUMENTS, NO_TOOLS, Tool, ToolUse
from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.server.generation.chat import ChatRequest
from ratoon.server.http.body import Body

MAX_STOP_SEQUENCES = 64
MAX_TOOLS = 512

BILLING_HEADER = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?", re.IGNORECASE)
"""A line that some agents put at the head of the system prompt, with a value that changes every time."""

PASSED_OVER = ("redacted_thinking", "server_tool_use", "web_search_tool_result")
"""Blocks of a history that mean nothing to a model of ours."""


def _content(value: object) -> object:
    """Check a content: a text, or a list of blocks that are objects with a type."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise ValueError("Content is a text or a list of blocks.")
    for block in value:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ValueError("A block is an object with a type.")
        _check_block(block)
    return value


def _check_block(block: Mapping[str, Any]) -> None:
    kind = block["type"]
    match block:
        case {"type": "text", "text": str()}:
            return
        case {"type": "tool_use", "id": str(), "name": str(), "input": dict()}:
            return
        case {"type": "tool_result", "tool_use_id": str()}:
            if block.get("content") is not None:
                _content(block["content"])
            return
        case {"type": "thinking", "thinking": str()}:
            return
        case {"type": "tool_reference"}:
            return
    if kind in ("text", "tool_use", "tool_result", "thinking"):
        raise ValueError(f"A block of the type {kind!r} lacks a field, or has one of another type.")
    if kind not in PASSED_OVER:
        raise ValueError(f"A block of the type {kind!r} cannot be read; this model takes text only.")


Content = Annotated[str | list[dict[str, Any]], PlainValidator(_content)]


class MessageBody(Body):
    """One message."""

    role: Literal["user", "assistant", "system"]
    content: Content


class ToolBody(Body):
    """A tool. Tools of the service itself have a type of their own and no schema."""

    accepted_in_silence: ClassVar[frozenset[str]] = frozenset({"cache_control", "eager_input_streaming"})

    name: Annotated[str, Field(min_length=1, max_length=128)]
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self) -> Tool | None:
        """Return the tool; None for one of the service itself."""
        if self.type not in (None, "custom"):
            return None
        return Tool(self.name, self.description, self.input_schema or ANY_ARGUMENTS, bool(self.strict))


class ToolChoiceBody(Body):
    """What the model shall do with the tools."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class CountBody(Body):
    """The body of `/v1/messages/count_tokens`, and what both bodies have in common."""

    accepted_in_silence: ClassVar[frozenset[str]] = frozenset(
        {
            "metadata",
            "service_tier",
            "betas",
            "anthropic_beta",
            "anthropic_version",
            "context_management",
            "cache_control",
            "inference_geo",
            "speed",
        }
    )

    model: str
    messages: Annotated[list[MessageBody], Field(min_length=1)]
    system: Content | None = None
    tools: Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoiceBody | None = None
    thinking: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None

    def warnings(self) -> list[str]:
        """Return what is passed over."""
        kinds = sorted({str(tool.type) for tool in self.tools or () if tool.tool() is None})
        return [f"ignored tools of the types: {', '.join(kinds)}"] if kinds else []

    def chat_request(self, *, drop_billing_header: bool) -> ChatRequest:
        """Return the conversation. Raises `InvalidParameterError` for tools that contradict each other."""
        messages = [message for one in self.messages for message in _messages(one.role, one.content)]
        if system := _system(self.system, drop_billing_header=drop_billing_header):
            messages.insert(0, {"role": "system", "content": system})
        return ChatRequest(
            messages=messages,
            tools=self._tool_use(),
            form=self._form(),
            variables=self._variables(),
            add_generation_prompt=messages[-1]["role"] != "assistant",
            continue_final_message=messages[-1]["role"] == "assistant",
        )

    def _variables(self) -> dict[str, Any]:
        kind = None if self.thinking is None else self.thinking.get("type")
        return {} if kind is None else {"enable_thinking": kind != "disabled"}

    def _form(self) -> StructuredOutputs | None:
        wanted = self.output_format or (self.output_config or {}).get("format")
        match wanted:
            case None:
                return None
            case {"type": "json_schema", "schema": dict(schema)}:
                return StructuredOutputs(json=schema)
        raise InvalidParameterError("An output format is a json_schema with a schema.")

    def _tool_use(self) -> ToolUse:
        tools = [found for tool in self.tools or () if (found := tool.tool()) is not None]
        choice = self.tool_choice or ToolChoiceBody(type="auto")
        if not tools and choice.type in ("auto", "none"):
            return NO_TOOLS
        parallel = not choice.disable_parallel_tool_use
        match choice.type:
            case "none":
                return ToolUse(tools, "none")
            case "any":
                return ToolUse(tools, "required", parallel=parallel)
            case "tool":
                return ToolUse(tools, name=choice.name or "", parallel=parallel)
        return ToolUse(tools, "auto", parallel=parallel)


class MessagesBody(CountBody):
    """The body of `/v1/messages`."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: Annotated[list[str], Field(max_length=MAX_STOP_SEQUENCES)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stream: bool = False

    def sampling_params(self) -> SamplingParams:
        """Return the parameters. Raises `InvalidParameterError`."""
        names = ("temperature", "top_p", "top_k")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return SamplingParams(max_tokens=self.max_tokens, stop=tuple(self.stop_sequences or ()), **given)


def _system(system: str | list[dict[str, Any]] | None, *, drop_billing_header: bool) -> Any:
    """Return the system prompt without what changes with every request."""
    texts = [system] if isinstance(system, str) else [block.get("text", "") for block in system or ()]
    if texts and drop_billing_header:
        texts[0] = BILLING_HEADER.sub("", texts[0])
    return _joined([text for text in texts if text])


def _messages(role: str, content: str | list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a message as OpenAI's API has it; results of tools are messages of their own."""
    if isinstance(content, str):
        yield {"role": role, "content": content}
    elif role == "assistant":
        yield _assistant(content)
    else:
        texts: list[str] = []
        for block in content:
            if block["type"] == "text":
                texts.append(block["text"])
            elif block["type"] == "tool_result":
                if texts:
                    yield {"role": role, "content": _joined(texts)}
                    texts = []
                yield _result(block)
        if texts or not content:
            yield {"role": role, "content": _joined(texts)}


def _assistant(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant"}
    message["content"] = _joined([block["text"] for block in blocks if block["type"] == "text"])
    if thoughts := [block["thinking"] for block in blocks if block["type"] == "thinking"]:
        message["reasoning_content"] = "\n".join(thoughts)
    calls = [
        {"id": block["id"], "type": "function", "function": _function(block)}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    return message | ({"tool_calls": calls} if calls else {})


def _function(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)}


def _result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content") or ""
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    text = "\n".join(texts)
    if block.get("is_error"):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": text}


def _joined(texts: Sequence[str]) -> str | list[dict[str, str]]:
    """Return one text as it is, several as parts."""
    if len(texts) < 2:
        return texts[0] if texts else ""
    return [{"type": "text", "text": text} for text in texts]
