"""`TableMatrix`: the block tables of a step as arrays, rewritten only where they changed."""

from collections.abc import Sequence

import numpy as np

from ratoon.device.ops.protocol import Ints
from ratoon.spec.cache_group import BlockTables


class TableMatrix:
    """Row i holds the tables of the i-th chunk, and is left alone while that brings the same tuple object."""

    def __init__(self, num_groups: int) -> None:
        self._rows: list[BlockTables | None] = []
        self._groups = [np.zeros((0, 0), np.int32) for _ in range(num_groups)]

    def update(self, tables: Sequence[BlockTables]) -> tuple[Ints, ...]:
        """Return per group an int32 array [len(tables), width], padded with 0; valid until the next call."""
        self._make_room(len(tables), max((len(table) for row in tables for table in row), default=0))
        for i, row in enumerate(tables):
            if row is self._rows[i]:
                continue
            for matrix, table in zip(self._groups, row, strict=True):
                matrix[i, : len(table)] = table
                matrix[i, len(table) :] = 0
            self._rows[i] = row
        return tuple(matrix[: len(tables)] for matrix in self._groups)

    def _make_room(self, num_rows: int, width: int) -> None:
        """Grow to twice what is needed; a larger matrix starts empty."""
        rows_now, width_now = self._groups[0].shape
        if num_rows > rows_now or width > width_now:
            shape = (max(rows_now, 2 * num_rows), max(width_now, 2 * width))
            self._groups = [np.zeros(shape, np.int32) for _ in self._groups]
            self._rows = [None] * shape[0]
