"""Tools in the bodies of chat completions."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from ratoon.chat.answer import Call
from ratoon.chat.events import CallArguments, CallBegun, ContentText, Event, ReasoningText
from ratoon.chat.tools import ANY_ARGUMENTS, NO_TOOLS, Tool, ToolUse
from ratoon.errors import InvalidParameterError
from ratoon.server.generation.request import Json
from ratoon.server.http.body import Body

ToolChoice = str | dict[str, Any]
MAX_TOOLS = 512


class FunctionBody(Body):
    """A function that may be called; without `parameters` it takes none."""

    name: str = Field(min_length=1, max_length=128)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def tool(self) -> Tool:
        """Return the tool."""
        return Tool(self.name, self.description, self.parameters or ANY_ARGUMENTS, bool(self.strict))


class ToolBody(Body):
    """A tool; there are functions only."""

    type: Literal["function"] = "function"
    function: FunctionBody


def tool_use(
    tools: Sequence[ToolBody] | None, choice: ToolChoice | None, *, parallel: bool | None
) -> ToolUse:
    """Return what is asked for. Raises `InvalidParameterError` for a choice that cannot be kept."""
    offered = [tool.function.tool() for tool in tools or ()]
    if not offered and choice in (None, "auto", "none"):
        return NO_TOOLS
    is_parallel = parallel is not False
    match choice:
        case None | "auto":
            return ToolUse(offered, "auto", parallel=is_parallel)
        case "none":
            return ToolUse(offered, "none", parallel=is_parallel)
        case "required":
            return ToolUse(offered, "required", parallel=is_parallel)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolUse(offered, name=name, parallel=is_parallel)
    raise InvalidParameterError(
        f"tool_choice must be none, auto, required or name a function, not {choice!r}."
    )


def call_body(call: Call) -> Json:
    """Return a whole call as a message has it."""
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def delta_of(event: Event) -> Json:
    """Return the delta of a message for what came newly."""
    match event:
        case ContentText(text):
            return {"content": text}
        case ReasoningText(text):
            return {"reasoning_content": text}
        case CallBegun(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
