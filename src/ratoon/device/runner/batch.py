"""`BatchBuilder`: a step plan's chunks, laid end to end as the arrays that the decoder takes."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ratoon.device.ops.dequantize import dequantize
from ratoon.device.ops.protocol import Adapter, Floats, Ints, StepInputs
from ratoon.device.runner.table_matrix import TableMatrix
from ratoon.step import ScheduledChunk, StepPlan

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
        self._groups = range(num_groups)

    def build(self, plan: StepPlan) -> tuple[Ints, StepInputs]:
        """Return token ids int32 [n] and where they stand; the block tables are valid until the next call.

        Everything is collected in lists: most steps have few rows, where each array operation costs more
        than it does.
        """
        chunks = plan.chunks
        token_ids: list[int] = []
        positions: list[int] = []
        ends = [0]
        for chunk in chunks:
            token_ids += chunk.token_ids
            positions += range(chunk.first_position, chunk.first_position + len(chunk.token_ids))
            ends.append(len(token_ids))
        return np.array(token_ids, np.int32), StepInputs(
            np.array(positions, np.int32),
            np.array(ends, np.int32),
            self._tables.update([chunk.block_tables for chunk in chunks]),
            tuple(np.array(self._slot_mapping(chunks, group), np.int64) for group in self._groups),
            tuple(None if chunk.adapter is None else self._find_adapter(chunk.adapter) for chunk in chunks),
        )

    def _slot_mapping(self, chunks: Sequence[ScheduledChunk], group: int) -> list[int]:
        """Return where each row's K and V go, -1 where they are there already."""
        size = self._block_size
        slots: list[int] = []
        for chunk in chunks:
            table = chunk.block_tables[group]
            first, write_from = chunk.first_position, chunk.write_from
            slots += [
                table[position // size] * size + position % size if position >= write_from else -1
                for position in range(first, first + len(chunk.token_ids))
            ]
        return slots


def given_rows(plan: StepPlan, starts: Sequence[int]) -> Iterator[tuple[int, Floats]]:
    """Return the plan's input rows float32 [k, hidden] with their first row of the step.

    `starts` says where each chunk's rows begin.
    """
    for chunk, start in zip(plan.chunks, starts, strict=False):
        for rows in chunk.input_rows:
            data = np.frombuffer(rows.data, np.uint8).reshape(rows.num_rows, -1)
            yield start + rows.offset, dequantize(data, rows.dtype)
