"""The native ops, which round activations to 8 bits and KV to float16, against recorded float32 numbers."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, Ops

native = pytest.importorskip("ratoon.device.ops.native", reason="the native ops are not built")

FOLDER = Path(__file__).parent / "smollm2"
PROMPTS: list[dict[str, Any]] = json.loads((FOLDER / "continuations.json").read_text())["prompts"]
PERPLEXITY: dict[str, Any] = json.loads((FOLDER / "perplexity.json").read_text())


@dataclass(frozen=True)
class Outcome:
    """How one prompt and its greedy continuation fared."""

    divergence: float
    agrees: list[bool]
    gaps: list[float]


@pytest.fixture(scope="module")
def decoder(load_smollm2: Callable[[Ops, str], Decoder]) -> Decoder:
    return load_smollm2(native.NativeOps(2), "f16")


@pytest.fixture(scope="module")
def outcomes(decoder: Decoder, forced_logits: Callable[..., Floats]) -> list[Outcome]:
    """Run every prompt with its recorded continuation."""
    found = []
    for case in PROMPTS:
        prompt, tokens = case["prompt"], case["tokens"]
        logits = forced_logits(decoder, prompt + tokens[:-1], len(prompt) - 1)
        agrees = [bool(x) for x in logits.argmax(axis=1) == tokens]
        found.append(Outcome(_divergence(logits[0], case["top"]), agrees, case["gaps"]))
    return found


def _log_softmax(logits: Floats) -> Any:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - math.log(np.exp(shifted).sum())


def _divergence(logits: Floats, top: list[list[float]]) -> float:
    """Kullback-Leibler divergence from the recorded distribution, in ten tokens and one bin for the rest."""
    recorded = [math.exp(logprob) for _, _, logprob in top]
    found = np.exp(_log_softmax(logits)[[int(token) for token, _, _ in top]]).tolist()
    pairs = zip([*recorded, 1 - sum(recorded)], [*found, 1 - sum(found)], strict=True)
    return sum(p * math.log(p / q) for p, q in pairs)


def test_the_distribution_after_each_prompt_is_close(outcomes: list[Outcome]) -> None:
    divergences = [outcome.divergence for outcome in outcomes]
    assert max(divergences) <= 0.02
    assert sum(divergences) / len(divergences) <= 0.01


def test_clear_choices_are_the_recorded_ones(outcomes: list[Outcome]) -> None:
    missed = [
        gap
        for outcome in outcomes
        for agrees, gap in zip(outcome.agrees, outcome.gaps, strict=True)
        if not agrees
    ]
    assert max(missed, default=0) <= 1.0


def test_at_least_95_percent_of_the_choices_are_the_recorded_ones(outcomes: list[Outcome]) -> None:
    agrees = [agrees for outcome in outcomes for agrees in outcome.agrees]
    assert len(agrees) == 768
    assert sum(agrees) / len(agrees) >= 0.95


def test_perplexity_is_within_one_percent(decoder: Decoder, forced_logits: Callable[..., Floats]) -> None:
    total, count = 0.0, 0
    for window in PERPLEXITY["windows"]:
        ids = window["ids"]
        logits = forced_logits(decoder, ids[:-1], 0)
        total -= sum(_log_softmax(row)[token] for row, token in zip(logits, ids[1:], strict=True))
        count += len(ids) - 1
    assert math.exp(total / count) == pytest.approx(PERPLEXITY["perplexity"], rel=0.01)
