"""`ResponsesBody`: the body of `/v1/responses`."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, model_validator

from ratoon.chat.tools import ANY_ARGUMENTS, NO_TOOLS, Tool, ToolUse
from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.server.generation.chat import ChatRequest
from ratoon.server.http.body import Body
from ratoon.server.responses.items import checked_items, messages_of, unknown_kinds

MAX_TOOLS = 512
UNSUPPORTED = ("background", "conversation", "prompt")
Items = Annotated[str | list[dict[str, Any]] | None, PlainValidator(checked_items)]


class TextBody(Body):
    """What the answer's text must be."""

    accepted_in_silence: ClassVar[frozenset[str]] = frozenset({"verbosity"})

    format: dict[str, Any] | None = None


class ResponsesBody(Body):
    """The body of `/v1/responses`. Tools of types that are not functions are passed over with a warning."""

    accepted_in_silence: ClassVar[frozenset[str]] = frozenset(
        {
            *UNSUPPORTED,
            "user",
            "service_tier",
            "safety_identifier",
            "include",
            "truncation",
            "stream_options",
            "client_metadata",
            "prompt_cache_key",
            "prompt_cache_retention",
        }
    )

    model: str | None = None
    input: Items = None
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    tools: Annotated[list[dict[str, Any]], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextBody | None = None
    reasoning: dict[str, Any] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    metadata: dict[str, Any] | None = None
    stream: bool | None = None

    @model_validator(mode="after")
    def _refuse_unsupported(self) -> "ResponsesBody":
        for name in UNSUPPORTED:
            if (self.model_extra or {}).get(name):
                raise ValueError(f"{name} is not supported by this server.")
        return self

    @property
    def items(self) -> list[dict[str, Any]]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input or []

    def warnings(self) -> list[str]:
        """Return what is passed over."""
        kinds = sorted({str(tool.get("type")) for tool in self.tools or () if tool.get("type") != "function"})
        found = [("tools", kinds), ("items", unknown_kinds(self.items))]
        return [f"ignored {what} of the types: {', '.join(kinds)}" for what, kinds in found if kinds]

    def chat_request(self, history: Sequence[dict[str, Any]]) -> ChatRequest:
        """Return the conversation, which goes on after a history of items.

        Raises `InvalidParameterError` for tools that contradict each other.
        """
        messages = messages_of([*history, *self.items])
        if self.instructions:
            messages.insert(0, {"role": "system", "content": self.instructions})
        if not messages:
            raise InvalidParameterError("There is no input.")
        return ChatRequest(messages=messages, tools=self._tool_use(), form=self._form())

    def sampling_params(self) -> SamplingParams:
        """Return the parameters. Raises `InvalidParameterError`."""
        names = ("temperature", "top_p")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return SamplingParams(max_tokens=self.max_output_tokens, **given)

    def _form(self) -> StructuredOutputs | None:
        match (self.text or TextBody()).format:
            case None | {"type": "text"}:
                return None
            case {"type": "json_object"}:
                return StructuredOutputs(json_object=True)
            case {"type": "json_schema", "schema": dict() | bool() as schema}:
                return StructuredOutputs(json=schema)
        raise InvalidParameterError("text.format is text, json_object, or a json_schema with a schema.")

    def _tool_use(self) -> ToolUse:
        tools = [_tool(tool) for tool in self.tools or () if tool.get("type") == "function"]
        parallel = self.parallel_tool_calls is not False
        if not tools and self.tool_choice in (None, "auto", "none"):
            return NO_TOOLS
        match self.tool_choice:
            case None | "auto":
                return ToolUse(tools, "auto", parallel=parallel)
            case "none":
                return ToolUse(tools, "none")
            case "required":
                return ToolUse(tools, "required", parallel=parallel)
            case {"type": "function", "name": str(name)}:
                return ToolUse(tools, name=name, parallel=parallel)
        raise InvalidParameterError(
            f"tool_choice must be none, auto, required or name a function, not {self.tool_choice!r}."
        )


def _tool(tool: dict[str, Any]) -> Tool:
    match tool:
        case {"name": str(name)} if name:
            description, parameters = tool.get("description"), tool.get("parameters")
            if isinstance(description, str | None) and isinstance(parameters, dict | None):
                return Tool(name, description, parameters or ANY_ARGUMENTS, bool(tool.get("strict")))
    raise InvalidParameterError("A function has a name, and may have a description and parameters.")
