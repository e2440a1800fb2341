"""Speculative decoding on real models: the same answers in fewer steps.

SmolLM2 answers by prompt lookup and as its own draft model; all that is compared is compared as it is without
drafts, log-probabilities to the bit.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.llm import LLM
from ratoon.engine.output import RequestOutput
from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import ChunkResult, Runner, ScheduledChunk, StepPlan, StepResult
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer

LIST = "one two three four five six seven eight nine ten "
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\n"
PROMPTS = [
    LIST * 3 + "one two three",
    CODE * 2 + "def add(a,",
    "Once upon a time there was a king who had three daughters. The eldest",
    "Sugar cane grows again from its roots. " * 5 + "Sugar cane",
    "x",
]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.0, "seed": 3},
    {"temperature": 0.7, "seed": 4, "top_p": 0.9, "top_k": 40},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.5},
    {"temperature": 0.5, "seed": 5, "presence_penalty": 1.0},
    {"stop": ["five", "return", "king", "."]},
    {"stop": ["e"], "min_tokens": 12, "include_stop_str_in_output": True},
    {"min_tokens": 20, "ignore_eos": False, "stop_token_ids": (198, 1, 2, 28, 30)},
    {"logit_bias": {198: 5.0, 28: -100.0}},
    {"n": 3, "temperature": 1.2, "seed": 6},
]


def params(**settings: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": 24, "logprobs": 2, **settings})


def comparable(outputs: Sequence[RequestOutput]) -> list[object]:
    return [
        (output.outputs, output.usage.prompt_tokens, output.usage.completion_tokens) for output in outputs
    ]


class Imperfect:
    """A runner that changes every third token of another one: what a smaller model would get wrong."""

    def __init__(self, inner: Runner) -> None:
        self.inner = inner

    def execute(self, plan: StepPlan) -> StepResult:
        result = self.inner.execute(plan)
        return result._replace(chunks=tuple(map(self._change, plan.chunks, result.chunks)))

    def _change(self, chunk: ScheduledChunk, found: ChunkResult) -> ChunkResult:
        end = chunk.first_position + len(chunk.token_ids)
        return found._replace(token_ids=tuple(token ^ (end % 3 == 0) for token in found.token_ids))


@pytest.fixture(scope="module")
def plain(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path) as llm:
        yield llm


@pytest.fixture(scope="module", params=["ngram", "model"])
def speculative(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[LLM]:
    name = "ngram" if request.param == "ngram" else str(smollm2_path)
    with LLM(smollm2_path, speculative=name, speculative_kv_cache_bytes=64 << 20) as llm:
        speculation: Any = llm._engine._core._speculation
        speculation._num_paying = lambda rates, most: list(most)  # however slow, and however often wrong
        if name != "ngram":
            speculation._drafter._runner = Imperfect(speculation._drafter._runner)
        yield llm


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_answers_and_their_logprobs_are_the_same(
    plain: LLM, speculative: LLM, settings: dict[str, Any]
) -> None:
    expected = plain.generate(PROMPTS, params(**settings))
    assert comparable(speculative.generate(PROMPTS, params(**settings))) == comparable(expected)
    assert comparable(speculative.generate(PROMPTS[1], params(**settings))) == comparable(expected[1:2])


def test_drafts_are_accepted_and_save_steps(plain: LLM, speculative: LLM) -> None:
    def steps(llm: LLM) -> int:
        before = llm._engine.call(lambda core: core.totals.num_steps).result()
        llm.generate(PROMPTS[0], params(max_tokens=37, ignore_eos=True))
        return llm._engine.call(lambda core: core.totals.num_steps).result() - before

    assert steps(plain) == 37
    assert steps(speculative) < 20


def test_sampled_answers_have_the_models_distribution(speculative: LLM) -> None:
    """Chi-squared over answers of four tokens, against the product of the model's own probabilities."""
    settings = {"temperature": 2.0, "top_k": 3, "max_tokens": 4, "logprobs": 3, "ignore_eos": True}
    before = replace(speculative._engine._core.draft_stats)
    answers = [
        answer
        for seed in range(4)
        for answer in speculative.generate(PROMPTS[1], params(**settings, n=128, seed=seed))[0].outputs
    ]
    after = speculative._engine._core.draft_stats
    assert 0 < after.num_accepted_drafts - before.num_accepted_drafts < after.num_drafts - before.num_drafts

    expected: dict[tuple[int, ...], float] = {}
    for answer in answers:
        chance = 1.0
        for token, best in zip(answer.token_ids, answer.logprobs or (), strict=True):
            weights = {token: math.exp(logprob / 2) for token, logprob in best.items()}
            chance *= weights[token] / sum(weights.values())
        expected[tuple(answer.token_ids)] = chance * len(answers)
    seen = Counter(tuple(answer.token_ids) for answer in answers)
    often = [tokens for tokens, number in expected.items() if number >= 5]
    assert len(often) >= 10
    statistic = sum((seen[tokens] - expected[tokens]) ** 2 / expected[tokens] for tokens in often)
    degrees = len(often)
    assert (
        statistic < degrees * (1 - 2 / (9 * degrees) + 3.3 * math.sqrt(2 / (9 * degrees))) ** 3
    )  # p = 0.0005


def test_a_draft_model_of_other_tokens_is_refused(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(Tokenizer):
        def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
            return b"?" if token_id == 49151 else super().token_bytes(token_id, skip_special=skip_special)

    def load(checkpoint: Checkpoint) -> Tokenizer:
        tokenizer = load_tokenizer(checkpoint)
        tokenizer.__class__ = Other
        return tokenizer

    monkeypatch.setattr("ratoon.engine.open_model.load_tokenizer", load)  # the draft model's
    with pytest.raises(InvalidParameterError, match="vocabularies differ"):
        load_model(smollm2_path, EngineConfig(speculative=str(smollm2_path)))


def test_a_pool_that_holds_no_draft_is_refused_by_its_own_name(smollm2_path: Path) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        load_model(smollm2_path, EngineConfig(speculative=str(smollm2_path), speculative_kv_cache_bytes=1))
    assert "--speculative-kv-cache-bytes" in str(caught.value.hint)


@pytest.fixture(scope="module")
def loaded(smollm2_path: Path) -> LoadedModel:
    return load_model(smollm2_path, EngineConfig(speculative=str(smollm2_path)))


def test_a_draft_model_has_a_pool_and_identity_of_its_own(loaded: LoadedModel) -> None:
    assert loaded.draft is not None
    assert loaded.draft.config.kv_cache_bytes == EngineConfig().speculative_kv_cache_bytes
    assert loaded.draft.budget.num_blocks < loaded.budget.num_blocks
    assert loaded.draft.root == loaded.root  # the same model; a cache of its own keeps them apart


def test_a_core_may_be_built_with_either_or_neither(loaded: LoadedModel) -> None:
    for speculative in (None, "ngram", loaded.config.speculative):
        core = build_core(loaded, replace(loaded.config, speculative=speculative))
        assert (core._speculation is None) == (speculative is None)
