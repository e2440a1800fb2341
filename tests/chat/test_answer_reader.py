"""Answers as models write them, read whole and in pieces of every size."""

import json
import random
from typing import Any

import pytest

from ratoon.chat.answer_reader import UNREADABLE_CALL, AnswerReader
from ratoon.chat.events import CallArguments, CallBegun, ContentText, ReasoningText
from ratoon.chat.reasoning import THINK
from ratoon.chat.tool_format import GEMMA, HERMES, LLAMA, MISTRAL, TOOL_FORMATS, ToolFormat

NAMES = ("get_weather", "add")
ODD = {"city": 'Z "ü" </tool_call> ] ```\n', "deep": {"a": [1, {"b": "}"}]}}


def _read(
    pieces: list[str], form: ToolFormat | None, **settings: Any
) -> tuple[str, str, list[tuple[str, Any]], str | None]:
    """Return reasoning, content, calls with parsed arguments, and the warning."""
    reader = AnswerReader(NAMES, form, THINK, **settings)
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for event in events:
        if isinstance(event, CallBegun):
            assert event.index == len(names)
            assert event.call_id
            names[event.index] = event.name
            arguments[event.index] = ""
        elif isinstance(event, CallArguments):
            arguments[event.index] += event.text
    calls = [(names[index], _parsed(arguments[index])) for index in names]
    assert reader.num_calls == len(calls)
    text = "".join(event.text for event in events if isinstance(event, ContentText))
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningText))
    return reasoning, text, calls, reader.warning


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _in_pieces(text: str, seed: int) -> list[str]:
    if seed == 0:
        return [text]
    if seed == 1:
        return list(text)
    rng = random.Random(seed)
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randrange(1, 9)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("form", TOOL_FORMATS.values(), ids=lambda form: form.name)
def test_calls_are_read_as_they_are_written(form: ToolFormat, seed: int) -> None:
    calls = [("get_weather", ODD), ("add", {}), ("get_weather", {"city": "Rome"})]
    for count in (1, 3):
        written = form.write(calls[:count])
        assert _read(_in_pieces(written, seed), form) == ("", "", calls[:count], None)
        if form is not LLAMA:
            lead = "Let me see."
            read = _read(_in_pieces(lead + "\n" + written + "\n", seed), form)
            assert read == ("", lead, calls[:count], None)
        thought = f"<think>\nHm <tool_call>\n</think>\n\n{written}"
        assert _read(_in_pieces(thought, seed), form) == ("\nHm <tool_call>\n", "", calls[:count], None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("form", "text", "calls"),
    [
        (HERMES, '<tool_call>{"arguments":{"a":1},"name":"add"}</tool_call>', [("add", {"a": 1})]),
        (HERMES, '<tool_call>\n{"name": "add", "arguments": "{\\"a\\": 1}"}\n</tool_call>',
         [("add", {"a": 1})]),
        (LLAMA, '<|python_tag|>{"name": "add", "parameters": {"a": 1}}', [("add", {"a": 1})]),
        (LLAMA, ' {"name": "add", "parameters": {}}\n{"name": "add", "parameters": {"a": 2}}',
         [("add", {}), ("add", {"a": 2})]),
        (MISTRAL, '[TOOL_CALLS][{"name": "add", "arguments": {"a": [1]}, "id": "abcdefghi"}]',
         [("add", {"a": [1]})]),
        (MISTRAL, '[TOOL_CALLS]add{"a": 1}[TOOL_CALLS]add[ARGS]{"a": 2}',
         [("add", {"a": 1}), ("add", {"a": 2})]),
        (GEMMA, "```tool_code\nprint(add(a=1, b=[2, 'x']))\n```", [("add", {"a": 1, "b": [2, "x"]})]),
        (GEMMA, "```tool_code\n[add(a=1)]\n```\n", [("add", {"a": 1})]),
    ],
)  # fmt: skip
def test_other_spellings_are_read_too(
    form: ToolFormat, text: str, calls: list[tuple[str, Any]], seed: int
) -> None:
    assert _read(_in_pieces(text, seed), form) == ("", "", calls, None)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("form", "text"),
    [
        (HERMES, 'So: <tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call> and more'),
        (HERMES, "a <tool_call>\nnot a call\n</tool_call>\n"),
        (HERMES, '<tool_call>\n{"name": "add", "arguments": [1]}\n</tool_call>'),
        (MISTRAL, "[TOOL_CALLS] [1, 2]"),
        (GEMMA, "```tool_code\nimport os\n```"),
        (GEMMA, "```tool_code\nadd(__import__('os'))\n```"),
        (LLAMA, "<|python_tag|>print(1)"),
    ],
)
def test_what_is_no_call_comes_back_as_text_with_a_warning(form: ToolFormat, text: str, seed: int) -> None:
    assert _read(_in_pieces(text, seed), form) == ("", text, [], UNREADABLE_CALL)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("form", [*TOOL_FORMATS.values(), None])
@pytest.mark.parametrize(
    "text", ["Plain text.\n\n  ", "a < b <tool", '{"a": 1}', "[TOOL", "  ", "`` ```python\nx\n```\n", "<thin"]
)
def test_text_stays_text(form: ToolFormat | None, text: str, seed: int) -> None:
    assert _read(_in_pieces(text, seed), form) == ("", text, [], None)


@pytest.mark.parametrize("seed", range(8))
def test_a_call_that_is_cut_gives_what_there_is(seed: int) -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": "x'
    assert _read(_in_pieces(text, seed), HERMES) == ("", "", [("add", '{"a": 1, "b": "x')], None)


def test_arguments_come_as_they_are_written() -> None:
    reader = AnswerReader(NAMES, HERMES)
    assert reader.feed("Yes. \n<tool") == [ContentText("Yes.")]
    assert reader.feed('_call>\n{"name": "add", "argu') == []
    begun, first = reader.feed('ments": {"a": ')
    assert isinstance(begun, CallBegun)
    assert first == CallArguments(0, '{"a": ')
    assert reader.feed("12") == [CallArguments(0, "12")]
    assert reader.feed("}}") == [CallArguments(0, "}")]
    assert reader.feed("\n</tool_call>") == reader.finish() == []


@pytest.mark.parametrize("seed", range(8))
def test_reasoning_that_the_prompt_began_ends_at_its_marker(seed: int) -> None:
    pieces = _in_pieces("I think</think>\n\nYes", seed)
    assert _read(pieces, None, is_reasoning=True) == ("I think", "Yes", [], None)
    assert _read(_in_pieces("I think", seed), None, is_reasoning=True) == ("I think", "", [], None)


def test_mistrals_ids_are_nine_letters_and_digits() -> None:
    reader = AnswerReader(NAMES, MISTRAL)
    ids = [
        event.call_id
        for event in reader.feed(MISTRAL.write([("add", {})] * 2))
        if isinstance(event, CallBegun)
    ]
    assert len(set(ids)) == 2
    assert all(len(name) == 9 and name.isalnum() for name in ids)
