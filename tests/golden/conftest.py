"""The real models, run over given tokens, and how what they say is compared with what was recorded."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.model.decoder import Decoder
from ratoon.device.model.load_decoder import load_decoder
from ratoon.device.ops.protocol import (
    Adapter,
    AdapterRows,
    FeedForwardWeights,
    Floats,
    Ints,
    KVLayout,
    Ops,
    StepInputs,
)
from ratoon.device.ops.reference import ReferenceOps
from ratoon.spec.cache_groups import cache_groups
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import ModelSpec

BLOCK = 16
NUM_BLOCKS = 100

Case = dict[str, Any]


def load(path: Path, ops: Ops, kv_dtype: str) -> Decoder:
    """Load a model with room for one sequence in every cache group."""
    checkpoint = open_checkpoint(path)
    spec = read_model_spec(checkpoint)
    groups = cache_groups(spec)
    num_blocks, num_slots = 1 + NUM_BLOCKS * len(groups), len(groups[0].layers)
    layout = KVLayout(num_blocks, BLOCK, num_slots, spec.num_kv_heads, spec.head_dim, kv_dtype)
    num_positions = NUM_BLOCKS * BLOCK
    return load_decoder(checkpoint, spec, groups, ops, ops.pages(layout), num_positions=num_positions)


@pytest.fixture(scope="session")
def load_smollm2(smollm2_path: Path) -> Callable[[Ops, str], Decoder]:
    """Return a function that loads SmolLM2 for these ops and this KV dtype, with room for one sequence."""
    return lambda ops, kv_dtype: load(smollm2_path, ops, kv_dtype)


@pytest.fixture(scope="session")
def load_gemma3(gemma_path: Path) -> Callable[[Ops, str], Decoder]:
    """Return the same for Gemma 3."""
    return lambda ops, kv_dtype: load(gemma_path, ops, kv_dtype)


@pytest.fixture(scope="session")
def forced_logits() -> Callable[..., Floats]:
    """Return a function: the logits that follow each of the tokens from number `first` on."""

    def run(
        decoder: Decoder,
        token_ids: list[int],
        first: int,
        *,
        num_groups: int = 1,
        adapter: Adapter | None = None,
    ) -> Floats:
        positions = np.arange(len(token_ids), dtype=np.int32)
        tables = np.arange(1, 1 + NUM_BLOCKS * num_groups, dtype=np.int32).reshape(num_groups, 1, -1)
        places = (positions.astype(np.int64) + table[0, 0] * BLOCK for table in tables)
        cu_seqlens = np.array([0, len(token_ids)], np.int32)
        inputs = StepInputs(positions, cu_seqlens, tuple(tables), tuple(places), (adapter,))
        return decoder.logits(
            decoder(np.array(token_ids, np.int32), inputs, np.arange(first, len(token_ids)))
        )[0]

    return run


TINY_BLOCK = 4
TINY_CHUNKS = ((0, 25), (25, 40))


@pytest.fixture(scope="session")
def tiny_logits() -> Callable[..., Floats]:
    """Return a function: the logits after each of 40 tokens that a tiny model computes in two chunks."""

    def run(
        path: Path, ops: Ops, tokens: list[int], change: Callable[[ModelSpec], ModelSpec] | None = None
    ) -> Floats:
        checkpoint = open_checkpoint(path)
        spec = read_model_spec(checkpoint)
        spec = spec if change is None else change(spec)
        groups = cache_groups(spec)
        width, num_slots = len(tokens) // TINY_BLOCK, max(len(group.layers) for group in groups)
        num_blocks = 1 + width * len(groups)
        layout = KVLayout(num_blocks, TINY_BLOCK, num_slots, spec.num_kv_heads, spec.head_dim, "f32")
        pages = ops.pages(layout)
        decoder = load_decoder(checkpoint, spec, groups, ops, pages, num_positions=len(tokens))
        tables = np.arange(1, num_blocks, dtype=np.int32).reshape(len(groups), 1, -1)
        hidden = []
        for first, end in TINY_CHUNKS:
            positions = np.arange(first, end, dtype=np.int32)
            slots = tuple(
                table[0, positions // TINY_BLOCK].astype(np.int64) * TINY_BLOCK + positions % TINY_BLOCK
                for table in tables
            )
            inputs = StepInputs(positions, np.array([0, end - first], np.int32), tuple(tables), slots)
            hidden.append(decoder(np.array(tokens[first:end], np.int32), inputs, np.arange(end - first)))
        return decoder.logits(np.concatenate(hidden))[0]

    return run


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

    def check_stream(self, layers: list[dict[str, Any]]) -> None:
        """Compare the stream with what was recorded; the last entry there comes after the final norm."""
        assert len(layers) - 1 == len(self.stream)
        for layer, x in zip(layers, self.stream, strict=False):
            name, norm = layer["name"], layer["l2"]
            np.testing.assert_allclose(np.linalg.norm(x), norm, rtol=1e-5, err_msg=name)
            np.testing.assert_allclose(x[:8], layer["first8"], atol=1e-5 * norm, err_msg=name)


@pytest.fixture(scope="module")
def ops() -> TracingOps:
    """Return reference ops that let tests look at the residual stream."""
    return TracingOps()


@pytest.fixture(scope="session")
def check_logits() -> Callable[[Case, Floats, float], None]:
    """Return a function that compares the logits after a prompt and along its continuation."""

    def check(case: Case, logits: Floats, atol: float) -> None:
        tokens, after_prompt = case["tokens"], logits[0].astype(np.float64)
        best_ids = [token for token, _, _ in case["top"]]
        np.testing.assert_allclose(
            after_prompt[best_ids], [logit for _, logit, _ in case["top"]], atol=atol, rtol=0
        )
        log_sum = after_prompt.max() + np.log(np.exp(after_prompt - after_prompt.max()).sum())
        summary = [log_sum, after_prompt.mean(), after_prompt.std()]
        np.testing.assert_allclose(summary, [case["logsumexp"], case["mean"], case["std"]], atol=atol, rtol=0)
        chosen = logits[np.arange(len(tokens)), tokens]
        np.testing.assert_allclose(chosen, case["logits"], atol=atol, rtol=0)
        clear = np.array(case["gaps"]) > 2 * atol
        assert logits.argmax(axis=1)[clear].tolist() == np.array(tokens)[clear].tolist()

    return check


@dataclass(frozen=True)
class Outcome:
    """How one prompt and its greedy continuation fared.

    `divergence` is Kullback and Leibler's, from the recorded distribution after the prompt, over the ten
    best tokens and one bin for the rest; `worst` the greatest difference of one of their log-probabilities.
    """

    divergence: float
    worst: float
    agrees: list[bool]
    gaps: list[float]


@pytest.fixture(scope="session")
def outcome_of() -> Callable[[Case, Floats], Outcome]:
    """Return a function of a case and the logits that were found for it."""

    def outcome(case: Case, logits: Floats) -> Outcome:
        ids, recorded = zip(*((int(token), logprob) for token, _, logprob in case["top"]), strict=True)
        found = log_softmax(logits[0])[list(ids)]
        p, q = np.exp(recorded), np.exp(found)
        p, q = np.append(p, 1 - p.sum()), np.append(q, 1 - q.sum())
        return Outcome(
            divergence=float((p * np.log(p / q)).sum()),
            worst=float(np.abs(found - recorded).max()),
            agrees=[bool(x) for x in logits.argmax(axis=1) == case["tokens"]],
            gaps=case["gaps"],
        )

    return outcome


@pytest.fixture(scope="session")
def nll_of() -> Callable[[list[int], Floats], float]:
    """Return a function of tokens and of the logits before each: their negative log-likelihood in nats."""

    def nll(token_ids: list[int], logits: Floats) -> float:
        return -float(sum(log_softmax(row)[token] for row, token in zip(logits, token_ids, strict=True)))

    return nll


def log_softmax(logits: Floats) -> Any:
    shifted = logits.astype(np.float64) - logits.max()
    return shifted - math.log(np.exp(shifted).sum())
