"""The native ops, which round activations to 8 bits and KV to 16, against recorded float32 numbers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats

native = pytest.importorskip("ratoon.device.ops.native", reason="the native ops are not built")

NUM_GROUPS = {"smollm2": 1, "gemma3": 6}
ROWS = 512
"""Logits of perplexity windows that are held at once; Gemma has 262,144 for each token."""


@pytest.fixture(scope="module", params=list(NUM_GROUPS))
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def decoder(request: pytest.FixtureRequest, model: str) -> Decoder:
    loaded: Decoder = request.getfixturevalue(f"load_{model}")(native.NativeOps(2), "int16")
    return loaded


def recorded(model: str, name: str) -> Any:
    """Read a file of the model's folder."""
    return json.loads((Path(__file__).parent / model / name).read_text())


@pytest.fixture(scope="module")
def outcomes(
    model: str, decoder: Decoder, forced_logits: Callable[..., Floats], outcome_of: Callable[..., Any]
) -> list[Any]:
    """Run every prompt with its recorded continuation."""
    found = []
    for case in recorded(model, "continuations.json")["prompts"]:
        ids, first = case["prompt"] + case["tokens"][:-1], len(case["prompt"]) - 1
        found.append(outcome_of(case, forced_logits(decoder, ids, first, num_groups=NUM_GROUPS[model])))
    return found


def test_the_distribution_after_each_prompt_is_close(outcomes: list[Any]) -> None:
    divergences = [outcome.divergence for outcome in outcomes]
    assert max(divergences) <= 0.02
    assert sum(divergences) / len(divergences) <= 0.01


def test_the_best_tokens_keep_their_probabilities(outcomes: list[Any]) -> None:
    worst = [outcome.worst for outcome in outcomes]
    assert max(worst) <= 1.0
    assert median(worst) <= 0.35


def test_clear_choices_are_the_recorded_ones(outcomes: list[Any]) -> None:
    missed = [
        gap
        for outcome in outcomes
        for agrees, gap in zip(outcome.agrees, outcome.gaps, strict=True)
        if not agrees
    ]
    assert max(missed, default=0) <= 1.0


def test_at_least_95_percent_of_the_choices_are_the_recorded_ones(outcomes: list[Any]) -> None:
    agrees = [agrees for outcome in outcomes for agrees in outcome.agrees]
    assert len(agrees) == 768
    assert sum(agrees) / len(agrees) >= 0.95


def test_perplexity_is_within_one_percent(
    model: str, decoder: Decoder, forced_logits: Callable[..., Floats], nll_of: Callable[..., float]
) -> None:
    total = expected = 0.0
    count = 0
    for window in recorded(model, "perplexity.json")["windows"]:
        ids = window["ids"]
        num_scored = len(ids) - 1
        for first in range(0, num_scored, ROWS):
            end = min(first + ROWS, num_scored)
            logits = forced_logits(decoder, ids[:end], first, num_groups=NUM_GROUPS[model])
            total += nll_of(ids[first + 1 : end + 1], logits)
        expected += window["nll_mean"] * num_scored
        count += num_scored
    assert math.exp(total / count) == pytest.approx(math.exp(expected / count), rel=0.01)
