"""The reference ops against recorded numbers of another engine that computes in float32 too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, Ops

FOLDER = Path(__file__).parent / "smollm2"
PROMPTS: list[dict[str, Any]] = json.loads((FOLDER / "continuations.json").read_text())["prompts"]
LAYERS: dict[str, Any] = json.loads((FOLDER / "layers.json").read_text())


@pytest.fixture(scope="module")
def decoder(ops: Any, load_smollm2: Callable[[Ops, str], Decoder]) -> Decoder:
    return load_smollm2(ops, "f32")


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case["name"])
def test_logits_and_greedy_tokens_are_those_recorded(
    case: dict[str, Any],
    decoder: Decoder,
    forced_logits: Callable[..., Floats],
    check_logits: Callable[..., None],
) -> None:
    prompt, tokens = case["prompt"], case["tokens"]
    check_logits(case, forced_logits(decoder, prompt + tokens[:-1], len(prompt) - 1), 2e-3)


def test_the_residual_stream_is_that_recorded_after_every_layer(
    ops: Any, decoder: Decoder, forced_logits: Callable[..., Floats]
) -> None:
    """Where the test above fails, this one tells in which layer it begins."""
    prompt = next(case["prompt"] for case in PROMPTS if case["name"] == LAYERS["prompt"])
    forced_logits(decoder, prompt, len(prompt) - 1)
    ops.check_stream(LAYERS["layers"])
