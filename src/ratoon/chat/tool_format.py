"""`ToolFormat`: how the models of one family write a tool call, as a value.

A call is a JSON object with the function's name and then its arguments. What stands before the first, between
two and after the last is the family's own.
"""

import json
import secrets
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """`marker` and `before` begin a call, or the list of all calls if `is_list`; `after` ends it.

    A marker is recognised wherever it stands; without one, an answer is a call if it begins like one.
    `other_markers` are recognised too, but not written. `between` stands between calls as the chat template
    writes them. `arguments_key` is what the family calls the arguments.
    """

    name: str
    marker: str
    before: str
    between: str
    after: str
    arguments_key: str = "arguments"
    is_list: bool = False
    other_markers: tuple[str, ...] = ()
    id_length: int = 0

    @property
    def markers(self) -> tuple[str, ...]:
        """Every text that begins a call."""
        return tuple(filter(None, (self.marker, *self.other_markers)))

    def new_id(self) -> str:
        """Return an id for a call. Templates of some families want so many letters and digits."""
        if self.id_length:
            alphabet = string.ascii_letters + string.digits
            return "".join(secrets.choice(alphabet) for _ in range(self.id_length))
        return f"call_{secrets.token_hex(12)}"

    def head(self, name: str) -> str:
        """Return what stands before the arguments of a call."""
        return f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{self.arguments_key}": '

    def write(self, calls: Sequence[tuple[str, Any]]) -> str:
        """Return calls, names with arguments, as the model would write them."""
        bodies = [
            self.head(name)
            + (arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False))
            + "}"
            for name, arguments in calls
        ]
        begin = self.marker + self.before
        if self.is_list:
            return begin + self.between.join(bodies) + self.after
        return self.between.join(begin + body + self.after for body in bodies)


HERMES = ToolFormat("hermes", "<tool_call>", "\n", "\n", "\n</tool_call>")
LLAMA = ToolFormat("llama3_json", "", "", "; ", "", "parameters", other_markers=("<|python_tag|>",))
MISTRAL = ToolFormat("mistral", "[TOOL_CALLS]", " [", ", ", "]", is_list=True, id_length=9)
GEMMA = ToolFormat(
    "gemma", "```tool_code", "\n", "\n", "\n```", "parameters", other_markers=("```tool_call",)
)

TOOL_FORMATS: Mapping[str, ToolFormat] = {form.name: form for form in (HERMES, LLAMA, MISTRAL, GEMMA)}


def tool_format_of(template: str) -> ToolFormat:
    """Return the format that a chat template speaks of; Hermes' for one that speaks of none."""
    if "<tool_call>" in template:
        return HERMES
    if "[TOOL_CALLS]" in template:
        return MISTRAL
    if "<|python_tag|>" in template or '"parameters": dictionary' in template:
        return LLAMA
    return GEMMA if "<start_of_turn>" in template else HERMES
