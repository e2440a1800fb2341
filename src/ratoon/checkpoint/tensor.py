"""`RawTensor`: one tensor as it lies in a model file."""

from collections.abc import Iterator
from dataclasses import dataclass

from ratoon.checkpoint.model_file import ModelFile


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes of a file that is open."""

    file: ModelFile
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class RawTensor:
    """Bytes of a tensor, not interpreted, in memory or in a file.

    `shape` is row-major with the contiguous axis last, so a linear layer is `(out_features,
    in_features)`. `dtype` is the GGUF name of the storage: `F32`, `F16`, `BF16`, `Q8_0`, `Q4_0`,
    `Q4_1`, ... Each row is a whole number of quantisation blocks. What lies in a file is read when it is
    asked for, and not kept; `CheckpointError` is raised where the file has been changed meanwhile.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    source: memoryview | FileRange

    @property
    def num_bytes(self) -> int:
        """Bytes in all."""
        return self.source.size if isinstance(self.source, FileRange) else self.source.nbytes

    @property
    def data(self) -> memoryview:
        """Return all bytes, read-only."""
        return next(self.chunks(self.num_bytes), memoryview(b""))

    def chunks(self, size: int) -> Iterator[memoryview]:
        """Return all bytes, at most `size` at a time."""
        source = self.source
        for first in range(0, self.num_bytes, size or 1):
            last = min(first + size, self.num_bytes)
            if isinstance(source, FileRange):
                yield source.file.read(source.start + first, last - first)
            else:
                yield source[first:last].toreadonly()

    def part(self, first: int, last: int) -> "RawTensor":
        """Return rows `first` to `last`, without a copy: one weight of several that lie in one tensor."""
        row_bytes = self.num_bytes // self.shape[0]
        start, end = first * row_bytes, last * row_bytes
        source = self.source
        if isinstance(source, FileRange):
            inside: memoryview | FileRange = FileRange(source.file, source.start + start, end - start)
        else:
            inside = source[start:end]
        return RawTensor(self.name, (last - first, *self.shape[1:]), self.dtype, inside)

    def rows(self, rows: list[int]) -> bytes | memoryview:
        """Return rows of a matrix, one after the other; their numbers are not checked."""
        row_bytes = self.num_bytes // self.shape[0]
        if isinstance(self.source, FileRange):
            return self.source.file.read_rows(self.source.start, row_bytes, rows)
        return b"".join([self.source[row * row_bytes : (row + 1) * row_bytes] for row in rows])
