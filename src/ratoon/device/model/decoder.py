"""`Decoder`: the transformer, as a sequence of blocks.

All that differs between Llama, Mistral, Qwen and Gemma lies in the weights and switches the blocks were
built with (`weights.py`), so nothing is left here but their order.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from ratoon.device.ops.protocol import (
    AdapterRows,
    AdapterSpan,
    Embedding,
    Floats,
    Head,
    Ints,
    Layer,
    Ops,
    SharedReads,
    StepInputs,
)


class Decoder:
    """Computes steps over the KV pages its attention blocks were built on, and writes to nothing else.

    `shared_reads` tells which sequences of the last step read blocks together.
    """

    def __init__(self, ops: Ops, embedding: Embedding, layers: Sequence[Layer], head: Head) -> None:
        self._ops = ops
        self._embedding = embedding
        *before, self._last = layers
        self._before = ops.layers(before)
        self._head = head
        self.shared_reads: Sequence[SharedReads] = ()

    def __call__(
        self,
        token_ids: Ints,
        inputs: StepInputs,
        rows: NDArray[np.intp],
        given: Iterable[tuple[int, Floats]] = (),
    ) -> Floats:
        """Run the tokens int32 [n], writing their K and V; return the last output [m, hidden] of `rows`.

        `given` are input rows [k, hidden], each with the place from which on they stand for the tokens' own.
        K and V of all sequences are written before any attention of the same layer reads. Of the last layer,
        which serves nothing but the logits, all else is computed for `rows` only.
        """
        step, adapters = self._ops.begin(inputs), self._adapters(inputs)
        x = self._embedding(token_ids)
        for place, values in given:
            x[place : place + len(values)] = values
        self._before(x, step, adapters)
        readers = step
        if not np.array_equal(rows, np.arange(len(x))):
            self._last.attention.store(x, step, adapters)
            of_rows = inputs.readers(rows)
            x, readers, adapters = x[rows], self._ops.begin(of_rows), self._adapters(of_rows)
        if len(rows):
            self._last.attention(x, readers, adapters)
            self._last.feed_forward(x, adapters)
        self.shared_reads = self._ops.shared_reads(step)
        return x

    def logits(self, hidden: Floats) -> tuple[Floats, Ints]:
        """Return float32 logits [m, vocab] of rows [m, hidden] that a call returned, and their argmax."""
        return self._head(hidden)

    def _adapters(self, inputs: StepInputs) -> AdapterRows | None:
        """Group the step's rows into spans that have an adapter in common; None where no row has one."""
        if not any(inputs.adapters):
            return None
        spans, first = [], 0
        each = np.repeat(np.array(inputs.adapters, object), np.diff(inputs.cu_seqlens))
        for adapter, group in groupby(each):
            end = first + sum(1 for _ in group)
            if adapter is not None:
                spans.append(AdapterSpan(first, end, adapter))
            first = end
        return self._ops.adapter_rows(first, spans)
