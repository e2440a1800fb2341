"""Gemma 3 in the reference ops: the float32 path, the only one that would show a window one token off.

Prompts longer than 700 tokens are left to the native ops, where they take no time.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats, Ops

FOLDER = Path(__file__).parent / "gemma3"
PROMPTS: list[dict[str, Any]] = [
    case
    for case in json.loads((FOLDER / "continuations.json").read_text())["prompts"]
    if len(case["prompt"]) <= 700
]
LAYERS: dict[str, Any] = json.loads((FOLDER / "layers.json").read_text())
NUM_GROUPS = 6


@pytest.fixture(scope="module")
def decoder(ops: Any, load_gemma3: Callable[[Ops, str], Decoder]) -> Decoder:
    return load_gemma3(ops, "f32")


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case["name"])
def test_logits_and_greedy_tokens_are_those_recorded(
    case: dict[str, Any],
    decoder: Decoder,
    forced_logits: Callable[..., Floats],
    check_logits: Callable[..., None],
) -> None:
    prompt, tokens = case["prompt"], case["tokens"]
    ids, first = prompt + tokens[:-1], len(prompt) - 1
    check_logits(case, forced_logits(decoder, ids, first, num_groups=NUM_GROUPS), 1e-3)


def test_the_residual_stream_is_that_recorded_after_every_layer(
    ops: Any, decoder: Decoder, forced_logits: Callable[..., Floats]
) -> None:
    """Where the test above fails, this one tells in which layer it begins; the prompt passes the window."""
    prompt = next(case["prompt"] for case in PROMPTS if case["name"] == LAYERS["prompt"])
    forced_logits(decoder, prompt, len(prompt) - 1, num_groups=NUM_GROUPS)
    ops.check_stream(LAYERS["layers"])
