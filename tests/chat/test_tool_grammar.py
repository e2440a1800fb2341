"""Grammars of tool calls: what the formats write fits, and nothing else does."""

from dataclasses import replace
from typing import Any

import pytest

from ratoon.chat.reasoning import THINK
from ratoon.chat.tool_format import HERMES, LLAMA, MISTRAL, TOOL_FORMATS, ToolFormat
from ratoon.chat.tool_grammar import GrammarSettings, answer_grammar
from ratoon.chat.tools import Tool, ToolUse
from ratoon.errors import GrammarError, InvalidParameterError
from ratoon.grammar.compiler import GrammarCompiler
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.text.tokenizer import Tokenizer

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "a town"}, "description": {"enum": ["x"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = (Tool("get_weather", "Weather of a place", CITY), Tool("now"))
ROME, OSLO = ("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Oslo", "description": "x"})
PLAIN = GrammarSettings({})


class Judge:
    """Says whether a text is a whole answer of a grammar."""

    def __init__(self, compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
        self._compiler = compiler
        self._tokenizer = tokenizer

    def __call__(self, form: StructuredOutputs | None, text: str, *, parse_special: bool = False) -> bool:
        assert form is not None
        matcher = self._compiler.matcher(form)
        ids = self._tokenizer.encode(text, add_special=False, parse_special=parse_special)
        return matcher.num_allowed([*ids, self._tokenizer.eos_token_ids[0]]) == len(ids) + 1


@pytest.fixture
def fits(compiler: GrammarCompiler, tokenizer: Tokenizer) -> Judge:
    return Judge(compiler, tokenizer)


@pytest.mark.parametrize("form", TOOL_FORMATS.values(), ids=lambda form: form.name)
def test_a_required_call_is_held_to_its_form(form: ToolFormat, fits: Judge) -> None:
    grammar = answer_grammar(ToolUse(TOOLS, "required"), form, PLAIN)
    assert fits(grammar, form.write([ROME]))
    assert fits(grammar, form.write([OSLO, ("now", {}), ROME]))
    assert not fits(grammar, "Rome")
    assert not fits(grammar, form.write([("get_weather", {})]))
    assert not fits(grammar, form.write([("unknown", {})]))
    assert not fits(grammar, "So " + form.write([ROME]))


@pytest.mark.parametrize("form", TOOL_FORMATS.values(), ids=lambda form: form.name)
def test_a_named_function_is_called_once(form: ToolFormat, fits: Judge) -> None:
    grammar = answer_grammar(ToolUse(TOOLS, name="now"), form, PLAIN)
    assert fits(grammar, form.write([("now", {})]))
    assert not fits(grammar, form.write([ROME]))
    assert not fits(grammar, form.write([("now", {})] * 2))


@pytest.mark.parametrize("form", TOOL_FORMATS.values(), ids=lambda form: form.name)
def test_a_free_answer_is_held_from_where_it_opens_a_call(form: ToolFormat, fits: Judge) -> None:
    grammar = answer_grammar(ToolUse(TOOLS), form, PLAIN)
    for text in ("", "Just text.\nMore < [ of it", form.write([ROME]), form.write([ROME, OSLO])):
        assert fits(grammar, text), text
    if form.marker:
        assert fits(grammar, "Let me see.\n" + form.write([ROME]))
    assert not fits(grammar, form.write([("get_weather", {"town": "Rome"})]))
    assert not fits(grammar, form.write([("unknown", {})]))


@pytest.mark.parametrize("form", TOOL_FORMATS.values(), ids=lambda form: form.name)
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_calls_in_parallel_can_be_forbidden(form: ToolFormat, choice: Any, fits: Judge) -> None:
    grammar = answer_grammar(ToolUse(TOOLS, choice, parallel=False), form, PLAIN)
    assert fits(grammar, form.write([ROME]))
    assert not fits(grammar, form.write([ROME, ROME]))


@pytest.mark.parametrize("use", [ToolUse(), ToolUse(TOOLS, "none")])
def test_without_tools_to_call_there_is_no_grammar(use: ToolUse) -> None:
    assert answer_grammar(use, HERMES, PLAIN) is None


def test_a_marker_that_is_a_control_token_is_that_token(fits: Judge, tokenizer: Tokenizer) -> None:
    form = replace(MISTRAL, marker="<|im_start|>")
    settings = GrammarSettings(tokenizer.control_ids)
    for use in (ToolUse(TOOLS, "required"), ToolUse(TOOLS)):
        grammar = answer_grammar(use, form, settings)
        assert fits(grammar, form.write([ROME]), parse_special=True)
    assert not fits(answer_grammar(ToolUse(TOOLS, "required"), form, settings), form.write([ROME]))
    assert not fits(answer_grammar(ToolUse(TOOLS), form, settings), "a<|im_end|>", parse_special=True)


def test_reasoning_may_stand_before_a_call_and_before_a_form(fits: Judge) -> None:
    thinks, goes_on = GrammarSettings({}, THINK), GrammarSettings({}, THINK, is_reasoning=True)
    call = HERMES.write([ROME])
    required = ToolUse(TOOLS, "required")
    assert fits(answer_grammar(required, HERMES, thinks), f"<think>\nHm.\n</think>\n\n{call}")
    assert fits(answer_grammar(required, HERMES, thinks), call)
    assert fits(answer_grammar(required, HERMES, goes_on), f"Hm.\n</think>\n\n{call}")
    assert not fits(answer_grammar(required, HERMES, goes_on), call)
    assert not fits(answer_grammar(required, HERMES, thinks), f"<think>\nHm.\n</think>\n\nNo {call}")
    for form, text in (
        (StructuredOutputs(json=CITY), '{"city": "Rome"}'),
        (StructuredOutputs(json_object=True), "{}"),
        (StructuredOutputs(choice=["a", "b"]), "b"),
    ):
        thoughtful = answer_grammar(ToolUse(), HERMES, thinks, form)
        assert fits(thoughtful, f"<think>Hm.</think>{text}")
        assert fits(thoughtful, text)
        assert answer_grammar(ToolUse(), HERMES, PLAIN, form) is form


@pytest.mark.parametrize("form", TOOL_FORMATS.values(), ids=lambda form: form.name)
def test_an_answer_may_be_a_call_or_what_is_wanted(form: ToolFormat, fits: Judge) -> None:
    for wanted, text in (
        (StructuredOutputs(json=CITY), '{"city": "Rome"}'),
        (StructuredOutputs(grammar='start: "a"'), "a"),
        (StructuredOutputs(regex="a/b+"), "a/bb"),
        (StructuredOutputs(choice=["yes", "no"]), "no"),
    ):
        if not form.marker or wanted.grammar:
            with pytest.raises(InvalidParameterError, match="exclude each other"):
                answer_grammar(ToolUse(TOOLS), form, PLAIN, wanted)
            continue
        grammar = answer_grammar(ToolUse(TOOLS), form, PLAIN, wanted)
        assert fits(grammar, text)
        assert fits(grammar, form.write([ROME]))
        assert not fits(grammar, "neither")


def test_a_schema_that_cannot_be_held_is_refused_by_name(compiler: GrammarCompiler) -> None:
    odd = Tool("odd", parameters={"type": "object", "propertyNames": {"pattern": "a"}})
    grammar = answer_grammar(ToolUse([odd], "required"), LLAMA, PLAIN)
    assert grammar is not None
    with pytest.raises(GrammarError, match="propertyNames"):
        compiler.check(grammar)
