"""The reference ops against recorded numbers of another engine that computes in float32 too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import AdapterRows, FeedForwardWeights, Floats, Ints, Ops
from ratoon.device.ops.reference import ReferenceOps

FOLDER = Path(__file__).parent / "smollm2"
PROMPTS: list[dict[str, Any]] = json.loads((FOLDER / "continuations.json").read_text())["prompts"]
LAYERS: dict[str, Any] = json.loads((FOLDER / "layers.json").read_text())


class TracingOps(ReferenceOps):
    """Keeps the residual stream of the last row after the embedding and after every layer."""

    def __init__(self) -> None:
        self.stream: list[Floats] = []

    def embedding(self, tensor: RawTensor, scale: float) -> Any:
        inner = super().embedding(tensor, scale)

        def traced(token_ids: Ints) -> Floats:
            x = inner(token_ids)
            self.stream = [x[-1].copy()]
            return x

        return traced

    def feed_forward(self, weights: FeedForwardWeights) -> Any:
        inner = super().feed_forward(weights)

        def traced(x: Floats, adapters: AdapterRows | None = None) -> None:
            inner(x, adapters)
            self.stream.append(x[-1].copy())

        return traced


@pytest.fixture(scope="module")
def ops() -> TracingOps:
    return TracingOps()


@pytest.fixture(scope="module")
def decoder(ops: TracingOps, load_smollm2: Callable[[Ops, str], Decoder]) -> Decoder:
    return load_smollm2(ops, "f32")


@pytest.mark.parametrize("case", PROMPTS, ids=lambda case: case["name"])
def test_logits_and_greedy_tokens_are_those_recorded(
    case: dict[str, Any], decoder: Decoder, forced_logits: Callable[..., Floats]
) -> None:
    prompt, tokens = case["prompt"], case["tokens"]
    logits = forced_logits(decoder, prompt + tokens[:-1], len(prompt) - 1)
    after_prompt = logits[0].astype(np.float64)
    best_ids = [token for token, _, _ in case["top"]]
    np.testing.assert_allclose(
        after_prompt[best_ids], [logit for _, logit, _ in case["top"]], atol=2e-3, rtol=0
    )
    log_sum = after_prompt.max() + np.log(np.exp(after_prompt - after_prompt.max()).sum())
    summary = [log_sum, after_prompt.mean(), after_prompt.std()]
    np.testing.assert_allclose(summary, [case["logsumexp"], case["mean"], case["std"]], atol=2e-3, rtol=0)
    chosen = logits[np.arange(len(tokens)), tokens]
    np.testing.assert_allclose(chosen, case["logits"], atol=2e-3, rtol=0)
    clear = np.array(case["gaps"]) > 4e-3
    assert logits.argmax(axis=1)[clear].tolist() == np.array(tokens)[clear].tolist()


def test_the_residual_stream_is_that_recorded_after_every_layer(
    ops: TracingOps, decoder: Decoder, forced_logits: Callable[..., Floats]
) -> None:
    """Where the test above fails, this one tells in which layer it begins."""
    prompt = next(case["prompt"] for case in PROMPTS if case["name"] == LAYERS["prompt"])
    forced_logits(decoder, prompt, len(prompt) - 1)
    recorded = LAYERS["layers"][:-1]  # without the final norm
    assert len(recorded) == len(ops.stream) == 31
    for layer, x in zip(recorded, ops.stream, strict=True):
        np.testing.assert_allclose(np.linalg.norm(x), layer["l2"], rtol=1e-5, err_msg=layer["name"])
        np.testing.assert_allclose(x[:8], layer["first8"], atol=1e-5 * layer["l2"], err_msg=layer["name"])
