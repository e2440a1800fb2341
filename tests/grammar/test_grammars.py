"""Forms as they are compiled and followed, with the tokenizer of a real model."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ratoon.errors import GrammarError, InvalidParameterError
from ratoon.grammar import source
from ratoon.grammar.compiler import GrammarCompiler
from ratoon.grammar.matcher import GrammarMatcher
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.text.tokenizer import Tokenizer

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def _allowed(matcher: GrammarMatcher) -> set[int]:
    bits = int.from_bytes(matcher.mask(), "little")
    return {place for place in range(bits.bit_length()) if bits >> place & 1}


def _fits(compiler: GrammarCompiler, tokenizer: Tokenizer, form: StructuredOutputs, text: str) -> bool:
    """Whether a text is a whole answer of the form."""
    matcher = compiler.matcher(form)
    ids = tokenizer.encode(text, add_special=False, parse_special=False)
    for token_id in ids:
        if token_id not in _allowed(matcher):
            return False
        matcher.accept([token_id])
    return tokenizer.eos_token_ids[0] in _allowed(matcher)


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        (
            StructuredOutputs(json=PERSON),
            ['{"name": "Bo \\" 🌍", "age": -3}'],
            ["{}", '{"name":"Bo","age":1}'],
        ),
        (StructuredOutputs(json_object=True), ["{}", '{"a": [1.5, null, {"b": "é"}]}'], ["[]", "1"]),
        (StructuredOutputs(json=True), ["1", "[]", "null"], ["x"]),
        (StructuredOutputs(regex=r"a+/\d{2}\/[^/]"), ["aa/12/x"], ["a/1/x", "a/12//"]),
        (
            StructuredOutputs(choice=['say "hi"', "\\n", "a/b", "<|im_end|>"]),
            ['say "hi"', "\\n", "a/b"],
            ["a"],
        ),
        (StructuredOutputs(grammar='start: "[" n ("," n)* "]"\nn: /[0-9]+/'), ["[1,22]"], ["[]"]),
    ],
)
def test_a_form_allows_what_it_says_and_nothing_else(
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
    form: StructuredOutputs,
    right: list[str],
    wrong: list[str],
) -> None:
    assert [text for text in right if not _fits(compiler, tokenizer, form, text)] == []
    assert [text for text in wrong if _fits(compiler, tokenizer, form, text)] == []


def test_the_text_of_a_control_token_is_not_the_token(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compiler.matcher(StructuredOutputs(choice=["<|im_end|>", "x"]))
    assert not _allowed(matcher) & set(tokenizer.control_ids.values())


def test_forced_tokens_are_those_of_the_text(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    text = json.dumps({"name": "Ada", "age": 36})
    ids = tokenizer.encode(text, add_special=False, parse_special=False)
    matcher = compiler.matcher(StructuredOutputs(json=PERSON))
    told: list[int] = []
    num_forced = 0
    while not matcher.is_over:
        forced = matcher.take_forced(may_end=True)
        told += forced
        num_forced += len(forced)
        if not forced:
            matcher.accept([ids[len(told)]])
            told.append(ids[len(told)])
    assert told == [*ids, tokenizer.eos_token_ids[0]]
    assert num_forced > len(ids) // 3
    assert matcher.num_tokens == len(told)
    assert matcher.take_forced(may_end=True) == ()
    assert _allowed(matcher) == set(tokenizer.eos_token_ids)


def test_a_matcher_that_is_told_all_at_once_stands_where_the_first_does(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode('{"name": "Ad', add_special=False, parse_special=False)
    one, other = (compiler.matcher(StructuredOutputs(json=PERSON)) for _ in range(2))
    while one.num_tokens < len(ids):
        one.take_forced(may_end=False)
        one.accept(ids[one.num_tokens : one.num_tokens + 1])
    other.accept(ids[: one.num_tokens])
    assert one.mask() == other.mask()
    assert one.take_forced(may_end=True) == other.take_forced(may_end=True)


def test_drafts_are_allowed_up_to_the_first_that_is_not(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compiler.matcher(StructuredOutputs(choice=["one two", "one three"]))
    before = matcher.mask()
    one, two, three = (
        tokenizer.encode(text, add_special=False, parse_special=False)[0]
        for text in ("one", " two", " three")
    )
    end = tokenizer.eos_token_ids[-1]
    assert matcher.num_allowed([one, two, end, one]) == 3
    assert matcher.num_allowed([one, end]) == 1
    assert matcher.num_allowed([one, three, two]) == 2
    assert matcher.num_allowed([two]) == matcher.num_allowed([]) == 0
    assert matcher.mask() == before


def test_a_token_that_is_not_allowed_is_an_error(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    matcher = compiler.matcher(StructuredOutputs(choice=["one"]))
    with pytest.raises(GrammarError, match="cannot be followed"):
        matcher.accept(tokenizer.encode("two", add_special=False, parse_special=False))


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"if": {}, "then": {"type": "string"}}, "if, then"),
        ({"type": "array", "contains": {}}, "contains"),
        ({"type": "string", "format": "iri"}, "iri"),
        ({"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]}, "oneOf"),
        ({"$ref": "https://example.com/schema"}, "example.com"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "number", "minimum": 2, "maximum": 1}, "minimum"),
        ({"x-guidance": {"lenient": True}, "not": {}}, "not"),
        (False, "false"),
        ({"$ref": "#"}, "No answer"),
    ],
)
def test_what_cannot_be_held_is_refused_by_name(
    compiler: GrammarCompiler, schema: dict[str, Any] | bool, named: str
) -> None:
    with pytest.raises(GrammarError, match=named):
        compiler.check(StructuredOutputs(json=schema))


@pytest.mark.parametrize(
    "form",
    [
        StructuredOutputs(regex="(" * 3000 + "a" + ")" * 3000),
        StructuredOutputs(grammar="start: " + "(" * 3000 + '"a"' + ")" * 3000),
        StructuredOutputs(grammar="start: start"),
        StructuredOutputs(grammar="start: nothing"),
        StructuredOutputs(grammar='{"grammars": [{"json_schema": {}}]}'),
        StructuredOutputs(
            json={"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(9)]} for i in range(9)]}
        ),
    ],
)
def test_a_hostile_form_is_refused(compiler: GrammarCompiler, form: StructuredOutputs) -> None:
    with pytest.raises(GrammarError):
        compiler.check(form)


def test_an_order_of_properties_is_kept(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    form = StructuredOutputs(json={"type": "object", "properties": {"b": {"const": 1}, "a": {"const": 2}}})
    assert _fits(compiler, tokenizer, form, '{"b": 1, "a": 2}')
    assert not _fits(compiler, tokenizer, form, '{"a": 2, "b": 1}')


def test_a_form_is_compiled_once_and_an_error_is_not_kept(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    real = source.grammar_text

    def counting(form: StructuredOutputs) -> str:
        compiled.append(form)
        return real(form)

    monkeypatch.setattr("ratoon.grammar.compiler.grammar_text", counting)
    form, bad = StructuredOutputs(choice=["once", "only"]), StructuredOutputs(regex="(")
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: compiler.check(StructuredOutputs(choice=("once", "only"))), range(8)))
    assert compiled == [form]
    for _ in range(2):
        with pytest.raises(GrammarError):
            compiler.check(bad)
    assert compiled == [form, bad, bad]


def test_the_form_used_last_stays_longest(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratoon.grammar.compiler.MAX_FORMS", 2)
    forms = [StructuredOutputs(choice=[name]) for name in ("first", "second", "third")]
    compiled: list[StructuredOutputs] = []
    real = source.grammar_text

    def counting(form: StructuredOutputs) -> str:
        compiled.append(form)
        return real(form)

    monkeypatch.setattr("ratoon.grammar.compiler.grammar_text", counting)

    def check(places: Iterable[int]) -> None:
        for place in places:
            compiler.check(forms[place])

    check([0, 1, 0, 2, 0, 1])
    assert compiled == [forms[0], forms[1], forms[2], forms[1]]


def test_a_model_without_an_end_has_no_structured_outputs(compiler: GrammarCompiler) -> None:
    endless = GrammarCompiler("{}", 10, ())
    with pytest.raises(InvalidParameterError, match="no token that ends"):
        endless.check(StructuredOutputs(choice=["a"]))
