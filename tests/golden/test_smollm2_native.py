"""The native ops, which round activations to 8 bits and KV to float16, against recorded float32 numbers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, Ops

native = pytest.importorskip("ratoon.device.ops.native", reason="the native ops are not built")

FOLDER = Path(__file__).parent / "smollm2"
PROMPTS: list[dict[str, Any]] = json.loads((FOLDER / "continuations.json").read_text())["prompts"]
PERPLEXITY: dict[str, Any] = json.loads((FOLDER / "perplexity.json").read_text())


@pytest.fixture(scope="module")
def decoder(load_smollm2: Callable[[Ops, str], Decoder]) -> Decoder:
    return load_smollm2(native.NativeOps(2), "f16")


@pytest.fixture(scope="module")
def outcomes(
    decoder: Decoder, forced_logits: Callable[..., Floats], outcome_of: Callable[..., Any]
) -> list[Any]:
    """Run every prompt with its recorded continuation."""
    return [
        outcome_of(
            case, forced_logits(decoder, case["prompt"] + case["tokens"][:-1], len(case["prompt"]) - 1)
        )
        for case in PROMPTS
    ]


def test_the_distribution_after_each_prompt_is_close(outcomes: list[Any]) -> None:
    divergences = [outcome.divergence for outcome in outcomes]
    assert max(divergences) <= 0.02
    assert sum(divergences) / len(divergences) <= 0.01


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
    windows = [window["ids"] for window in PERPLEXITY["windows"]]
    total = sum(nll_of(ids[1:], forced_logits(decoder, ids[:-1], 0)) for ids in windows)
    count = sum(len(ids) - 1 for ids in windows)
    assert math.exp(total / count) == pytest.approx(PERPLEXITY["perplexity"], rel=0.01)
