"""Gemma 3 in the native ops, which round activations to 8 bits and KV to float16."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, Ops

native = pytest.importorskip("ratoon.device.ops.native", reason="the native ops are not built")

FOLDER = Path(__file__).parent / "gemma3"
PROMPTS: list[dict[str, Any]] = json.loads((FOLDER / "continuations.json").read_text())["prompts"]
PERPLEXITY: dict[str, Any] = json.loads((FOLDER / "perplexity.json").read_text())
NUM_GROUPS = 6


@pytest.fixture(scope="module")
def decoder(load_gemma3: Callable[[Ops, str], Decoder]) -> Decoder:
    return load_gemma3(native.NativeOps(2), "f16")


@pytest.fixture(scope="module")
def outcomes(
    decoder: Decoder, forced_logits: Callable[..., Floats], outcome_of: Callable[..., Any]
) -> list[Any]:
    """Run every prompt with its recorded continuation."""
    found = []
    for case in PROMPTS:
        ids, first = case["prompt"] + case["tokens"][:-1], len(case["prompt"]) - 1
        found.append(outcome_of(case, forced_logits(decoder, ids, first, num_groups=NUM_GROUPS)))
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
    decoder: Decoder, forced_logits: Callable[..., Floats], nll_of: Callable[..., float]
) -> None:
    (window,) = PERPLEXITY["windows"]
    ids = window["ids"]
    total = 0.0
    for first in range(0, len(ids) - 1, 512):  # 262,144 logits for each token: not for all of them at once
        end = min(first + 512, len(ids) - 1)
        logits = forced_logits(decoder, ids[:end], first, num_groups=NUM_GROUPS)
        total += nll_of(ids[first + 1 : end + 1], logits)
    assert math.exp(total / (len(ids) - 1)) == pytest.approx(math.exp(window["nll_mean"]), rel=0.01)
