"""`Decoder`: the transformer, as a sequence of blocks.

All that differs between Llama, Mistral, Qwen and Gemma lies in the weights and switches the blocks were
built with (`weights.py`), so nothing is left here but their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratoon.device.ops.protocol import (
    AttentionBlock,
    Embedding,
    FeedForwardBlock,
    Floats,
    Head,
    Ints,
    Ops,
    SharedReads,
    StepInputs,
)


@dataclass(frozen=True, slots=True)
class Layer:
    """The two blocks of one layer."""

    attention: AttentionBlock
    feed_forward: FeedForwardBlock


class Decoder:
    """Computes steps over the KV pages its attention blocks were built on, and writes to nothing else.

    `shared_reads` tells which sequences of the last step read blocks together.
    """

    def __init__(self, ops: Ops, embedding: Embedding, layers: Sequence[Layer], head: Head) -> None:
        self._ops = ops
        self._embedding = embedding
        self._layers = tuple(layers)
        self._head = head
        self.shared_reads: Sequence[SharedReads] = ()

    def __call__(self, token_ids: Ints, inputs: StepInputs, rows: NDArray[np.intp]) -> Floats:
        """Run the tokens int32 [n], writing their K and V; return the last output [m, hidden] of `rows`.

        K and V of all sequences are written before any attention of the same layer reads. The last
        feed-forward, which serves nothing but the logits, is computed for `rows` only.
        """
        step = self._ops.begin(inputs)
        x = self._embedding(token_ids)
        *layers, last = self._layers
        for layer in layers:
            layer.attention(x, step)
            layer.feed_forward(x)
        last.attention(x, step)
        self.shared_reads = self._ops.shared_reads(step)
        x = x[rows]
        if len(rows):
            last.feed_forward(x)
        return x

    def logits(self, hidden: Floats) -> Floats:
        """Return float32 logits [m, vocab] of rows [m, hidden] that a call returned."""
        return self._head(hidden)
