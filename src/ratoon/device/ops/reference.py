"""`ReferenceOps`: every operation in NumPy float32, slow and obvious.

It is the oracle that other kernels are compared with, and what runs where there is no compiler. Weights are
expanded to float32 once, when a module is built; the token table is expanded row by row as it is read.
"""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.dequantize import FORMATS, dequantize, tensor_bytes, tensor_values
from ratoon.device.ops.protocol import (
    AdapterRows,
    AdapterSpan,
    AdapterWeights,
    AttentionWeights,
    FeedForwardWeights,
    Floats,
    Ints,
    KVLayout,
    KVPages,
    Layer,
    Layers,
    LMHeadWeights,
    SharedBlocks,
    Step,
    StepInputs,
)
from ratoon.device.ops.reference_adapter import ReferenceAdapter, ReferenceAdapterRows, reference_rows
from ratoon.device.ops.reference_attention import ReferenceAttention, ReferencePages
from ratoon.device.ops.reference_functions import ACTIVATIONS, Product, rms_norm, softcap


class ReferenceFeedForward:
    """One layer's feed-forward network."""

    def __init__(self, weights: FeedForwardWeights) -> None:
        self._w = weights
        self._activation = ACTIVATIONS[weights.activation]
        self._gate = Product(tensor_values(weights.gate))
        self._up = Product(tensor_values(weights.up))
        self._down = Product(tensor_values(weights.down))

    def __call__(self, x: Floats, adapters: AdapterRows | None = None) -> None:
        """Add the module's output to `x` [n, hidden] in place."""
        w, rows = self._w, reference_rows(adapters)
        h = rms_norm(x, w.norm, w.eps)
        gate, up = self._gate(h), self._up(h)
        rows.add(gate, h, w.layer, "gate")
        rows.add(up, h, w.layer, "up")
        active = self._activation(gate) * up
        out = self._down(active)
        rows.add(out, active, w.layer, "down")
        x += out if w.post_norm is None else rms_norm(out, w.post_norm, w.eps)


class ReferenceLMHead:
    """Final norm and output projection."""

    def __init__(self, weights: LMHeadWeights) -> None:
        self._w = weights
        self._out = Product(tensor_values(weights.out))

    def __call__(self, x: Floats) -> tuple[Floats, Ints]:
        """Return logits [m, vocab] of the rows `x` [m, hidden], and where each row's highest stands."""
        logits = softcap(self._out(rms_norm(x, self._w.norm, self._w.eps)), self._w.softcap)
        return logits, logits.argmax(axis=1).astype(np.int32)


class ReferenceEmbedding:
    """The token table, in its storage format."""

    def __init__(self, tensor: RawTensor, scale: float) -> None:
        self._rows = tensor_bytes(tensor)
        self._dtype = tensor.dtype
        self._scale = np.float32(scale)

    def __call__(self, token_ids: Ints) -> Floats:
        """Return new float32 [n, hidden] rows, scaled."""
        return dequantize(self._rows[token_ids], self._dtype) * self._scale


class ReferenceOps:
    """`Ops` in NumPy."""

    name = "reference"
    numerics = "reference-1"

    def supports(self, dtype: str) -> bool:
        """Whether linear weights of this storage can be packed."""
        return dtype in FORMATS

    def linear(self, tensors: Sequence[RawTensor]) -> Product:
        """Pack weights whose rows are the tensors' rows one after the other."""
        return Product(np.concatenate([tensor_values(tensor) for tensor in tensors]))

    def embedding(self, tensor: RawTensor, scale: float) -> ReferenceEmbedding:
        """Make a token table."""
        return ReferenceEmbedding(tensor, scale)

    def attention(self, weights: AttentionWeights, pages: KVPages) -> ReferenceAttention:
        """Build one attention module over a pool."""
        return ReferenceAttention(weights, pages)

    def feed_forward(self, weights: FeedForwardWeights) -> ReferenceFeedForward:
        """Build one feed-forward module."""
        return ReferenceFeedForward(weights)

    def layers(self, layers: Sequence[Layer]) -> Layers:
        """Join layers."""

        def run(x: Floats, step: Step, rows: NDArray[np.intp], adapters: AdapterRows | None = None) -> Floats:
            for layer in layers:
                layer.attention(x, step, adapters)
                layer.feed_forward(x, adapters)
            return x[rows]

        return run

    def lm_head(self, weights: LMHeadWeights) -> ReferenceLMHead:
        """Build the output projection."""
        return ReferenceLMHead(weights)

    def adapter_bytes(self, weights: AdapterWeights) -> int:
        """Return how much memory the adapter will take: four bytes a number."""
        return sum(
            4 * prod(half.shape)
            for layer in weights.layers
            for pair in layer.values()
            for half in (pair.a, pair.b)
        )

    def adapter(self, weights: AdapterWeights) -> ReferenceAdapter:
        """Expand an adapter."""
        return ReferenceAdapter(weights)

    def adapter_rows(self, num_rows: int, spans: Sequence[AdapterSpan]) -> ReferenceAdapterRows:
        """Take the adapters of a step's rows."""
        return ReferenceAdapterRows(spans)

    def pages(self, layout: KVLayout) -> ReferencePages:
        """Allocate a pool, zeroed lazily by the operating system."""
        return ReferencePages(layout)

    def begin(self, inputs: StepInputs) -> StepInputs:
        """Take a step's inputs, once for all layers."""
        return inputs

    def shared_blocks(self, step: Step) -> Sequence[SharedBlocks]:
        """Return nothing: every sequence reads for itself."""
        return ()
