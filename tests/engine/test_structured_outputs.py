"""Answers with a form, from a real model: what changes them, and what does not."""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from ratoon import LLM, SamplingParams
from ratoon.engine.build import LoadedModel, build_core
from ratoon.engine.core import EngineCore
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.errors import GrammarError, InvalidParameterError
from ratoon.grammar.matcher import GrammarMatcher
from ratoon.request.finish import FinishReason
from ratoon.request.structured_outputs import StructuredOutputs
from tests.engine.exactness import SMOLLM2, Ask, Bench, Guesses, load
from tests.engine.schemas import random_schema

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["cat", "caterpillar", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
FORM = StructuredOutputs(json=PERSON)


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> LoadedModel:
    return load(SMOLLM2, smollm2_path, threads=1)


def _ask(model: LoadedModel, text: str = "A person as JSON:", seed: int = 1, **params: Any) -> Ask:
    settings: dict[str, Any] = {"max_tokens": 60, "temperature": 1.2, "structured_outputs": FORM} | params
    ids = model.tokenizer.encode(text, add_special=True, parse_special=False)
    return Ask(PromptTokens(ids), SamplingParams(**settings), seed)


def _text(model: LoadedModel, token_ids: Sequence[int]) -> str:
    return model.tokenizer.decode(token_ids)


def test_what_a_form_masks_is_chosen_from_the_bits_of_the_free_run(model: LoadedModel) -> None:
    ask = _ask(model)
    [answer] = Bench(model).run([ask])
    jsonschema.validate(json.loads(_text(model, answer.token_ids)), PERSON)
    free = replace(ask.params, structured_outputs=None, max_tokens=1, temperature=0)
    matcher = model.grammars.matcher(FORM)
    num_forced = len(matcher.take_forced(may_end=False))
    read = iter(answer.logits)
    while not matcher.is_over:
        known = [*ask.prompt.ids, *answer.token_ids[: matcher.num_tokens]]
        [alone] = Bench(model, enable_prefix_caching=False).run([Ask(PromptTokens(known), free)])
        assert next(read) == alone.logits[0]
        matcher.accept(answer.token_ids[matcher.num_tokens : matcher.num_tokens + 1])
        num_forced += len(matcher.take_forced(may_end=False)) + len(matcher.take_forced(may_end=True))
    assert next(read, None) is None
    assert len(answer.logits) == len(answer.token_ids) - num_forced
    assert num_forced > len(answer.token_ids) // 3


@pytest.mark.parametrize(
    "settings",
    [
        {"max_num_batched_tokens": 1},
        {"max_num_batched_tokens": 7, "share_in_flight": False},
        {"num_blocks": 6},
        {"enable_prefix_caching": False},
    ],
)
def test_an_answer_does_not_depend_on_how_it_is_scheduled(
    model: LoadedModel, settings: dict[str, Any]
) -> None:
    asks = [_ask(model, seed=seed) for seed in range(5)]
    asks += [_ask(model, seed=9, structured_outputs={"choice": ["yes", "yesterday", "no"]})]
    asks += [_ask(model, seed=9, structured_outputs=None, max_tokens=12)]
    alone = [Bench(model).run([ask])[0] for ask in asks]
    bench = Bench(model, **settings)
    together = bench.run(asks)
    assert [one.has_bits_of(other) for one, other in zip(alone, together, strict=True)] == [True] * 7
    if "num_blocks" in settings:
        assert bench.core.scheduler.num_preemptions > 0


def test_drafts_change_no_answer_and_those_the_form_forbids_are_not_run(model: LoadedModel) -> None:
    asks = [_ask(model, seed=seed) for seed in range(4)]
    alone = [Bench(model).run([ask])[0] for ask in asks]
    answers = dict(zip(asks, alone, strict=True))
    guesses = Guesses(random.Random(3), model.spec.vocab_size, lambda ask: answers[ask].token_ids)
    bench = Bench(model, guesses=guesses)
    requests = [bench.add(ask) for ask in asks]
    drafted = bench.finish(requests)
    assert [one.has_bits_of(other) for one, other in zip(alone, drafted, strict=True)] == [True] * 4
    num_drafts = sum(request.num_drafts for request in requests)
    num_accepted = sum(request.num_accepted_drafts for request in requests)
    assert 0 < num_accepted <= num_drafts
    assert sum(request.num_forced for request in requests) > 0


def test_forced_tokens_save_steps(model: LoadedModel) -> None:
    form = StructuredOutputs(json={"type": "object", "properties": {"a_long_name": {"const": "a long value"}},
                                   "required": ["a_long_name"], "additionalProperties": False})  # fmt: skip
    bench = Bench(model)
    request = bench.add(_ask(model, structured_outputs=form))
    [answer] = bench.finish([request])
    assert _text(model, answer.token_ids) == '{"a_long_name": "a long value"}'
    assert request.num_forced == len(answer.token_ids)
    assert bench.core.totals.num_steps == 2


def test_all_of_an_answer_but_its_last_token_can_be_found_even_if_its_end_was_forced(
    model: LoadedModel,
) -> None:
    bench = Bench(model)
    for length in range(16):
        form = StructuredOutputs(choice=["a" * length + " and this is how every answer of that form ends"])
        ask = _ask(model, structured_outputs=form)
        [answer] = bench.run([ask])
        known = [*ask.prompt.ids, *answer.token_ids]
        follower = Ask(PromptTokens([*known, 5, 6, 7]), SamplingParams(max_tokens=1))
        assert bench.run([follower])[0].usage.cached_tokens == (len(known) - 1) // 16 * 16


def test_a_form_changes_no_key(model: LoadedModel) -> None:
    text = "One and the same long prompt, which several requests have in common with each other. " * 2
    bench = Bench(model)
    free, formed, other = (
        _ask(model, text, structured_outputs=form) for form in (None, FORM, {"regex": "[a-z]+"})
    )
    num_full = len(free.prompt.ids) // 16 * 16
    for ask, cached in ((free, 0), (formed, num_full), (other, num_full)):
        [answer] = bench.run([ask])
        assert answer.usage.cached_tokens == cached


def test_log_probabilities_are_of_what_the_form_allows(smollm2_path: Path) -> None:
    choices = ["yes", "no", "perhaps"]
    params = SamplingParams(
        temperature=0, logprobs=20, max_tokens=9, structured_outputs=StructuredOutputs(choice=choices)
    )
    with LLM(smollm2_path) as llm:
        [output] = llm.generate("Is it so?", params)
    answer = output.outputs[0]
    assert answer.text in choices
    assert answer.logprobs is not None
    assert len(answer.logprobs) == len(answer.token_ids)
    for entry in answer.logprobs:
        assert np.exp(list(entry.values())).sum() == pytest.approx(1, abs=1e-4)
        assert all(np.isfinite(list(entry.values())))


def test_answers_to_one_prompt_and_stop_strings(smollm2_path: Path) -> None:
    params = SamplingParams(n=4, seed=5, temperature=1.3, max_tokens=60, structured_outputs=FORM)
    with LLM(smollm2_path) as llm:
        [output] = llm.generate("A person as JSON:", params)
        [again] = llm.generate("A person as JSON:", params)
        [stopped] = llm.generate("A person as JSON:", replace(params, n=1, stop=(', "age"',)))
        [cut] = llm.generate("A person as JSON:", replace(params, n=1, max_tokens=6))
    texts = [answer.text for answer in output.outputs]
    assert texts == [answer.text for answer in again.outputs]
    assert len(set(texts)) > 1
    for answer in output.outputs:
        assert answer.finish_reason == "stop"
        jsonschema.validate(json.loads(answer.text), PERSON)
    assert stopped.outputs[0].text == texts[0].partition(', "age"')[0]
    assert stopped.outputs[0].stop_reason == ', "age"'
    assert cut.outputs[0].finish_reason == "length"
    assert len(cut.outputs[0].token_ids) == 6


def test_min_tokens_gives_way_where_the_form_allows_only_the_end(model: LoadedModel) -> None:
    ask = _ask(model, min_tokens=20, structured_outputs={"choice": ["yes"]})
    [answer] = Bench(model).run([ask])
    assert _text(model, answer.token_ids) == "yes"
    longer = _ask(model, min_tokens=20, structured_outputs={"regex": "(a|b)*"})
    [answer] = Bench(model).run([longer])
    assert len(answer.token_ids) >= 20


@pytest.fixture
def core(model: LoadedModel) -> EngineCore:
    return build_core(model)


def test_a_form_that_cannot_be_followed_ends_its_own_request_alone(
    model: LoadedModel, core: EngineCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    doomed, fine = (_ask(model, seed=seed).request(model, seed) for seed in (1, 2))
    core.add(doomed)
    core.add(fine)
    real = GrammarMatcher.mask

    def mask(matcher: GrammarMatcher) -> bytes:
        if matcher is core._runner._matchers._by_request.get(1):  # type: ignore[attr-defined]
            raise GrammarError("Too complex.")
        return real(matcher)

    monkeypatch.setattr(GrammarMatcher, "mask", mask)
    last = {}
    while core.has_work:
        for delta in core.step():
            last[delta.request_id] = delta
    assert last[1].finish_reason is FinishReason.FAILED
    assert isinstance(last[1].error, GrammarError)
    assert last[2].finish_reason is FinishReason.STOP
    assert core.scheduler.cache.num_free_blocks == core.scheduler.cache.num_usable_blocks


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"json": {"not": {}}}, GrammarError),
        ({"json": "{"}, InvalidParameterError),
        ({}, InvalidParameterError),
    ],
)
def test_a_form_that_cannot_be_held_is_refused_before_anything_runs(
    smollm2_path: Path, form: dict[str, Any], error: type[Exception]
) -> None:
    with LLM(smollm2_path) as llm, pytest.raises(error):
        llm.generate("x", SamplingParams(structured_outputs=form))  # type: ignore[arg-type]


def test_random_schemas_hold_at_a_high_temperature(model: LoadedModel) -> None:
    rng = random.Random(1)
    schemas = [random_schema(rng) for _ in range(24)]
    bench = Bench(model)
    asks = [
        _ask(model, seed=rng.randrange(2**32), temperature=3.0, max_tokens=120,
             structured_outputs={"json": schema})
        for schema in schemas
    ]  # fmt: skip
    num_whole = 0
    for schema, answer in zip(schemas, bench.run(asks), strict=True):
        if len(answer.token_ids) < 120:
            jsonschema.validate(json.loads(_text(model, answer.token_ids)), schema)
            num_whole += 1
    assert num_whole >= 12
