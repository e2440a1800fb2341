"""`Tool` and `ToolUse`: what a model may call, and whether it must."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ratoon.errors import InvalidParameterError

ANY_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the caller offers. `parameters` is a JSON schema for its arguments, an object.

    Where the schema `is_strict`, calls are held to it or refused; else, to as much of it as can be held.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=lambda: ANY_ARGUMENTS)
    is_strict: bool = False

    def for_template(self) -> dict[str, Any]:
        """Return the tool as chat templates expect it."""
        function: dict[str, Any] = {"name": self.name}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": {**function, "parameters": self.parameters}}


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Tools, and what the model shall do with them.

    With `none` it only sees them, with `auto` it may call them, with `required` it must; with a `name` it
    must call that one. Unless calls may be `parallel`, an answer has one at most.
    """

    tools: Sequence[Tool] = ()
    choice: Literal["none", "auto", "required"] = "auto"
    name: str | None = None
    parallel: bool = True

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        for name in names:
            if names.count(name) > 1:
                raise InvalidParameterError(f"Two tools have the name {name!r}.")
        if self.name is not None and self.name not in names:
            raise InvalidParameterError(f"tool_choice names {self.name!r}, which is not among the tools.")
        if self.choice == "required" and not self.tools:
            raise InvalidParameterError("tool_choice asks for a call, but there are no tools.")

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """The tools that an answer may call."""
        if self.choice == "none":
            return ()
        return tuple(tool for tool in self.tools if self.name in (None, tool.name))

    @property
    def must_call(self) -> bool:
        """Whether an answer without a call is wrong."""
        return self.choice == "required" or self.name is not None


NO_TOOLS = ToolUse()


def arguments_mapping(arguments: object) -> object:
    """Return a call's arguments as a mapping where they are the JSON text of one; else as they are."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments
