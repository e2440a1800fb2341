"""Sampling against its definition: sort, cut, renormalise, add a Gumbel number to each, take the best."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling import sampler
from ratoon.device.sampling.penalties import TokenCounts
from ratoon.device.sampling.randomness import gumbel, token_bits
from ratoon.device.sampling.sampler import NEAR
from ratoon.errors import EngineError
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import SampleSpec


def _spec(seed: int = 0, num_generated: int = 0, **params: Any) -> SampleSpec:
    return SampleSpec(SamplingParams(**params), seed, num_generated)


def _sample(logits: Floats, spec: SampleSpec, prompt: Sequence[int] = (), output: Sequence[int] = ()) -> int:
    counts = TokenCounts()
    counts.add(prompt, output)
    return sampler.sample(logits, int(logits.argmax()), spec, counts)


def _kept(logits: list[float], params: SamplingParams) -> dict[int, float]:
    """Return the tokens that the filters keep and their renormalised probabilities, in float64."""
    scaled = {token: (logit - max(logits)) / params.temperature for token, logit in enumerate(logits)}
    kept = {token: x for token, x in scaled.items() if not params.min_p or x >= math.log(params.min_p)}
    if params.top_k:
        last = sorted(kept.values(), reverse=True)[min(params.top_k, len(kept)) - 1]
        kept = {token: x for token, x in kept.items() if x >= last}
    mass = {token: math.exp(x) for token, x in kept.items()}
    if params.top_p < 1:
        so_far, last = 0.0, 0.0
        for weight in sorted(mass.values(), reverse=True):
            so_far, last = so_far + weight, weight
            if so_far >= params.top_p * sum(mass.values()):
                break
        mass = {token: weight for token, weight in mass.items() if weight >= last}
    return {token: weight / sum(mass.values()) for token, weight in mass.items()}


def _assert_drawn(logits: list[float], params: SamplingParams, seed: int, index: int) -> None:
    """Check that the token is kept by the filters and that no other one wins against it."""
    token = _sample(np.array(logits, np.float32), SampleSpec(params, seed, index))
    kept = _kept(logits, params)
    assert token in kept
    tokens = np.array(list(kept))
    scores = np.log(list(kept.values())) + gumbel(token_bits(seed, index, tokens))
    assert scores[list(kept).index(token)] >= scores.max() - 1e-5


@given(
    logits=st.lists(st.integers(-40, 40).map(lambda x: x / 8), min_size=1, max_size=30),
    temperature=st.sampled_from([0.25, 0.5, 1.0, 2.0]),
    top_k=st.integers(0, 31),
    top_p=st.sampled_from([0.013, 0.31, 0.777, 0.953, 1.0]),
    min_p=st.sampled_from([0.0, 0.011, 0.37, 1.0]),
    seed=st.integers(0, 2**64 - 1),
    index=st.integers(0, 100_000),
)
def test_a_token_is_drawn_from_what_the_filters_keep(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float, seed: int, index: int
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    _assert_drawn(logits, params, seed, index)


@pytest.mark.parametrize("filters", [{}, {"top_p": 0.6}, {"top_p": 0.999}, {"top_k": 300}])
def test_a_large_vocabulary_is_no_different(filters: dict[str, Any]) -> None:
    rng = np.random.default_rng(1)
    for index in range(10):
        logits = [float(x) for x in rng.standard_normal(1500).astype(np.float32) * 3]
        _assert_drawn(logits, SamplingParams(temperature=0.5, **filters), 1, index)


def test_tokens_far_behind_the_best_win_as_often_as_they_should() -> None:
    logits = np.concatenate([np.zeros(1), np.full(20_000, NEAR - 0.1)]).astype(np.float32)
    expected = 300 / (1 + math.exp(-(NEAR - 0.1)) / 20_000)
    far = sum(_sample(logits, _spec(4, i)) > 0 for i in range(300))
    assert abs(far - expected) < 3.3 * math.sqrt(expected * (1 - expected / 300))  # p = 0.001


def test_rows_that_are_alike_are_mostly_drawn_alike() -> None:
    """At least as often as the coupling's theorem says; one random number for a whole row would not do."""
    rng = np.random.default_rng(2)
    agreed = promised = 0.0
    for index in range(400):
        one = (rng.standard_normal(300) * 1.5).astype(np.float32)
        other = one + rng.standard_normal(300).astype(np.float32) * np.float32(0.5)
        agreed += _sample(one, _spec(1, index)) == _sample(other, _spec(1, index))
        p, q = (np.exp(row, dtype=np.float64) / np.exp(row, dtype=np.float64).sum() for row in (one, other))
        promised += np.minimum(p, q).sum() / np.maximum(p, q).sum()
    assert agreed > promised - 3.3 * math.sqrt(400 / 4)


def test_nearly_impossible_tokens_are_not_drawn_and_break_nothing() -> None:
    logits = np.array([-np.inf, 3.0, -1e30, -900.0], np.float32)
    assert {_sample(logits, _spec(i)) for i in range(50)} == {1}


def test_frequencies_are_the_probabilities() -> None:
    logits = np.array([0.0, 1.0, 2.0, -1.0], np.float32)
    draws = [_sample(logits, _spec(9, i, temperature=0.8)) for i in range(5000)]
    weights = np.exp(logits.astype(np.float64) / 0.8)
    expected = 5000 * weights / weights.sum()
    assert ((np.bincount(draws, minlength=4) - expected) ** 2 / expected).sum() < 16.3  # 3 degrees, p = 0.001


def test_greedy_takes_the_lowest_id_of_the_best_and_leaves_the_row_alone() -> None:
    logits = np.array([1.0, 5.0, 5.0], np.float32)
    before = logits.tobytes()
    assert _sample(logits, _spec(temperature=0)) == 1
    _sample(logits, _spec(temperature=1, top_k=2, logit_bias={0: 3.0}))
    assert logits.tobytes() == before


def test_a_draw_depends_on_seed_and_number_of_tokens_generated_and_on_nothing_else() -> None:
    logits = np.zeros(1000, np.float32)
    first = _sample(logits, _spec(5, 7))
    assert _sample(logits, _spec(6, 7)) != first
    assert _sample(logits, _spec(5, 8)) != first
    assert _sample(logits, _spec(5, 7)) == first


def test_top_k_of_one_and_a_tiny_temperature_are_greedy() -> None:
    logits = np.array([1.0, 5.0, 4.99], np.float32)
    for i in range(50):
        assert _sample(logits, _spec(i, temperature=3.0, top_k=1)) == 1
        assert _sample(logits, _spec(i, temperature=1e-300)) == 1


def test_tokens_that_tie_with_the_last_one_kept_are_kept() -> None:
    logits = np.array([0.0, 2.0, 1.0, 1.0, 1.0], np.float32)
    drawn = {_sample(logits, _spec(i, temperature=5.0, top_k=2)) for i in range(200)}
    assert drawn == {1, 2, 3, 4}


def test_bias_bans_and_penalties_come_before_the_choice() -> None:
    logits = np.array([1.0, 5.0, 4.0], np.float32)
    assert _sample(logits, _spec(temperature=0, logit_bias={0: 50.0})) == 0
    banned = SampleSpec(SamplingParams(temperature=0), 0, 0, banned_token_ids=(1,))
    assert _sample(logits, banned) == 2
    repeated = _spec(temperature=0, repetition_penalty=2.0)
    assert _sample(logits, repeated, prompt=(1,), output=(2,)) == 1
    assert _sample(logits, repeated, prompt=(1,)) == 2


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_engine_error(temperature: float) -> None:
    with pytest.raises(EngineError, match="not finite"):
        _sample(np.array([0.0, np.nan, 1.0], np.float32), _spec(temperature=temperature))
