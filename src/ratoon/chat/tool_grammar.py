"""Grammars that hold tool calls to their form: from the first token, or from where the model opens one.

A call's text is written as the chat template will write it in the next turn, so that the answer is found in
the cache then.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratoon.chat.reasoning import ReasoningFormat
from ratoon.chat.tool_format import ToolFormat
from ratoon.chat.tools import Tool, ToolUse
from ratoon.errors import InvalidParameterError
from ratoon.grammar.source import between_slashes, inline_json
from ratoon.request.structured_outputs import StructuredOutputs

_NOTES = ("description", "title", "examples", "default", "$schema", "$comment", "deprecated")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions")


@dataclass(frozen=True, slots=True)
class GrammarSettings:
    """What a grammar depends on besides the tools.

    `control_ids` are the model's control tokens by name: a marker among them is a token, any other a text.
    With `reasoning` an answer may begin with reasoning, and has begun with it where it `is_reasoning`.
    """

    control_ids: Mapping[str, int]
    reasoning: ReasoningFormat | None = None
    is_reasoning: bool = False


def answer_grammar(
    use: ToolUse, form: ToolFormat, settings: GrammarSettings, wanted: StructuredOutputs | None = None
) -> StructuredOutputs | None:
    """Return the form of answers that use tools as they may, and have the form that is `wanted` else.

    None where an answer may be anything.
    """
    tools = use.callable_tools
    if not tools:
        return wanted if wanted is None or settings.reasoning is None else _after_reasoning(wanted, settings)
    rules = _call_rules(tools, form)
    marker, between = _marker(form, settings), ""
    if use.parallel and use.name is None:
        next_call = "item" if form.is_list else f"{marker} call"
        between = f"({_text(form.between)} {next_call})*"
    if form.is_list:
        rules.append(f"calls: {_text(form.before)} item {between} {_text(form.after)}")
    else:
        rules.append(f"calls: call {between}")
    if use.must_call:
        rules.append(f"start: {_thought(settings, rules)} {marker} calls")
    elif wanted is not None:
        if wanted.grammar is not None or not form.marker:
            raise InvalidParameterError("Tools and a form of the answer exclude each other here.")
        rules.append(f"start: {_thought(settings, rules)} ({marker} calls | {_body(wanted)})")
    else:
        rules += _free_text(form, settings)
    return StructuredOutputs(grammar="\n".join(rules))


def _after_reasoning(wanted: StructuredOutputs, settings: GrammarSettings) -> StructuredOutputs:
    if wanted.grammar is not None:
        return wanted
    rules: list[str] = []
    rules.append(f"start: {_thought(settings, rules)} {_body(wanted)}")
    return StructuredOutputs(grammar="\n".join(rules))


def _body(wanted: StructuredOutputs) -> str:
    """Return a form as a part of a grammar."""
    if wanted.json is not None:
        return inline_json(json.loads(str(wanted.json)))
    if wanted.regex is not None:
        return f"/{between_slashes(wanted.regex)}/"
    if wanted.choice is not None:
        return f"({' | '.join(map(_text, wanted.choice))})"
    return inline_json({"type": "object"})


def _call_rules(tools: Sequence[Tool], form: ToolFormat) -> list[str]:
    rules = [f"item: {' | '.join(f'item_{number}' for number in range(len(tools)))}"]
    rules += [_item(number, tool, form) for number, tool in enumerate(tools)]
    return [*rules, f"call: {_text(form.before)} item {_text(form.after)}"]


def _item(number: int, tool: Tool, form: ToolFormat) -> str:
    return f'item_{number}: {_text(form.head(tool.name))} {inline_json(_bare(tool.parameters))} "}}"'


def _free_text(form: ToolFormat, settings: GrammarSettings) -> list[str]:
    """Return the rules of answers that may call: text up to where a call is opened."""
    if not form.marker:
        return ["start: TEXT | calls", r"TEXT: /(\s*[^{\s](.|\n)*)?/"]
    if form.marker in settings.control_ids:
        head = [f"head: TEXT {_marker(form, settings)}"]
    else:
        head = [f"head[lazy]: /(.|\\n)*/ {_text(form.marker)}"]
    return ["start: TEXT | head calls TAIL", *head, r"TEXT: /(.|\n)*/", r"TAIL: /\s*/"]


def _thought(settings: GrammarSettings, rules: list[str]) -> str:
    """Add the rules of reasoning and return how it stands before an answer."""
    if settings.reasoning is None:
        return ""
    begin, end = settings.reasoning.begin, settings.reasoning.end
    rules.append(r"BLANKS: /\s*/")
    if settings.is_reasoning:
        rules.append(f"thought[lazy]: /(.|\\n)*/ {_text(end)}")
        return "thought BLANKS"
    rules.append(f"thought[lazy]: {_text(begin)} /(.|\\n)*/ {_text(end)}")
    return "(thought BLANKS)?"


def _marker(form: ToolFormat, settings: GrammarSettings) -> str:
    token_id = settings.control_ids.get(form.marker)
    return _text(form.marker) if token_id is None else f"<[{token_id}]>"


def _text(text: str) -> str:
    """Return a text as Lark writes it; nothing for none."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def _bare(schema: Any) -> Any:
    """Return a schema without what only describes it."""
    if not isinstance(schema, Mapping):
        return [_bare(one) for one in schema] if isinstance(schema, list) else schema
    bare: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _BY_NAME and isinstance(value, Mapping):
            bare[key] = {name: _bare(one) for name, one in value.items()}
        elif key in ("enum", "const", "required"):
            bare[key] = value
        elif key not in _NOTES:
            bare[key] = _bare(value)
    return bare
