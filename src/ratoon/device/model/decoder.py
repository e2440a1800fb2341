"""`Decoder`: the transformer, as a sequence of layers.

All that differs between Llama, Mistral, Qwen and Gemma lies in the weights and switches the modules were
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
    Ints,
    Layer,
    LMHead,
    Ops,
    SharedBlocks,
    StepInputs,
)


class Decoder:
    """Computes steps over the KV pages its attention modules were built on, and writes to nothing else.

    `shared_blocks` tells which sequences of the last step read blocks together.
    """

    def __init__(self, ops: Ops, embedding: Embedding, layers: Sequence[Layer], head: LMHead) -> None:
        self._ops = ops
        self._embedding = embedding
        self._layers = ops.layers(layers)
        self._head = head
        self.shared_blocks: Sequence[SharedBlocks] = ()

    def __call__(
        self,
        token_ids: Ints,
        inputs: StepInputs,
        rows: NDArray[np.intp],
        given: Iterable[tuple[int, Floats]] = (),
    ) -> Floats:
        """Run the tokens int32 [n], writing their K and V; return the last output [m, hidden] of `rows`.

        `given` are input rows [k, hidden], each with the place from which on they stand for the tokens' own.
        K and V of all sequences are written before any attention of the same layer reads.
        """
        step, adapters = self._ops.begin(inputs), self._adapters(inputs)
        x = self._embedding(token_ids)
        for place, values in given:
            x[place : place + len(values)] = values
        hidden = self._layers(x, step, rows, adapters)
        self.shared_blocks = self._ops.shared_blocks(step)
        return hidden

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
