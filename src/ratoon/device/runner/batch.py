"""`BatchBuilder`: a step plan's chunks, laid end to end as the arrays that the decoder takes."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from ratoon.device.ops.dequantize import dequantize
from ratoon.device.ops.protocol import Adapter, Floats, Ints, StepInputs
from ratoon.device.runner.table_matrix import TableMatrix
from ratoon.step import StepPlan

FindAdapter = Callable[[bytes], Adapter]
"""From a digest to the adapter, which the chunk's request keeps in memory."""


def no_adapter(digest: bytes) -> Adapter:
    """Find nothing."""
    raise KeyError(f"there is no adapter {digest.hex()}")


class BatchBuilder:
    """Keeps what it derived from block tables that have not changed since the last step."""

    def __init__(self, *, num_groups: int, block_size: int, find_adapter: FindAdapter = no_adapter) -> None:
        self._block_size = block_size
        self._find_adapter = find_adapter
        self._tables = TableMatrix(num_groups)

    def build(self, plan: StepPlan) -> tuple[Ints, StepInputs]:
        """Return token ids int32 [n] and where they stand; the block tables are valid until the next call."""
        chunks = plan.chunks
        lengths = np.array([len(chunk.token_ids) for chunk in chunks], np.int32)
        cu_seqlens = np.zeros(len(chunks) + 1, np.int32)
        np.cumsum(lengths, out=cu_seqlens[1:])
        num_rows = int(cu_seqlens[-1])
        token_ids = np.fromiter(chain.from_iterable(chunk.token_ids for chunk in chunks), np.int32, num_rows)
        sequence = np.repeat(np.arange(len(chunks)), lengths)
        first = np.array([chunk.first_position for chunk in chunks], np.int32)
        positions = np.arange(num_rows, dtype=np.int32) + (first - cu_seqlens[:-1])[sequence]
        writes = positions >= np.array([chunk.write_from for chunk in chunks], np.int32)[sequence]
        blocks, offsets = np.divmod(positions, self._block_size)
        tables = self._tables.update([chunk.block_tables for chunk in chunks])
        slots = tuple(
            np.where(writes, table[sequence, blocks].astype(np.int64) * self._block_size + offsets, -1)
            for table in tables
        )
        adapters = tuple(
            None if chunk.adapter is None else self._find_adapter(chunk.adapter) for chunk in chunks
        )
        return token_ids, StepInputs(positions, cu_seqlens, tables, slots, adapters)


def given_rows(plan: StepPlan, starts: Sequence[int]) -> Iterator[tuple[int, Floats]]:
    """Return the plan's input rows float32 [k, hidden] with their first row of the step.

    `starts` says where each chunk's rows begin.
    """
    for chunk, start in zip(plan.chunks, starts, strict=False):
        for rows in chunk.input_rows:
            data = np.frombuffer(rows.data, np.uint8).reshape(rows.num_rows, -1)
            yield start + rows.place, dequantize(data, rows.dtype)
