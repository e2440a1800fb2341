"""The header of a GGUF file: metadata and the table of tensors.

The walk goes over the header once and believes nothing: each count, length and offset is checked
against what is left of the file before it is used, so a damaged file ends in one sentence, in bounded
time and memory. Names and sizes of the storage types come from the `gguf` package. Its `GGUFReader` is
not used: it makes an array for every token string (1.6 s where this takes 30 ms), and counts on past
the end of a truncated file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import math
import struct
from dataclasses import dataclass
from typing import NoReturn

from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from ratoon.checkpoint.model_file import ModelFile
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError

_MAGIC = b"GGUF"
_FIRST_READ_BYTES = 16 << 20  # more than the header of a model with 150,000 tokens and their merges
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4  # of the format's own library
_MAX_VALUES = 1 << 23
"""Elements of all arrays together: twenty times what a vocabulary of 150,000 tokens takes."""
_STORAGE = {kind.value: kind for kind in GGMLQuantizationType if kind in GGML_QUANT_SIZES}
_SCALARS: dict[int, str] = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.FLOAT64: "d",
    GGUFValueType.BOOL: "?",
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor lies: `size` bytes at `start`, counted from the beginning of the file."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Everything before the tensors' bytes. Arrays in `metadata` are lists."""

    metadata: dict[str, object]
    tensors: tuple[TensorEntry, ...]


def read_gguf_header(file: ModelFile) -> GgufHeader:
    """Read a file's header, however long it is.

    Raises `CorruptCheckpointError`, and `UnsupportedModelError` for a big-endian or split file, another
    version of the format, or an unknown storage type.
    """
    size = min(file.size, _FIRST_READ_BYTES)
    while True:
        try:
            return parse_gguf_header(file.read(0, size), file.size, str(file.path))
        except _HeaderEndsError:
            size = min(file.size, 4 * size)


def parse_gguf_header(data: memoryview, file_size: int, name: str) -> GgufHeader:
    """Read a header from the first bytes of a file of this size, called `name` in errors.

    Raises as `read_gguf_header` does.
    """
    walk = _Walk(data, file_size, name)
    _check_version(walk)
    num_tensors, num_keys = walk.integer("Q"), walk.integer("Q")
    metadata = _read_metadata(walk, num_keys)
    if walk.unsigned(metadata, "split.count", 1) > 1:
        raise UnsupportedModelError(
            f"{name} is one part of a split GGUF.", hint="Join the parts with `llama-gguf-split --merge`."
        )
    alignment = walk.unsigned(metadata, "general.alignment", _DEFAULT_ALIGNMENT)
    return GgufHeader(metadata, _read_tensor_table(walk, num_tensors, alignment))


def _check_version(walk: "_Walk") -> None:
    if bytes(walk.take(4)) != _MAGIC:
        walk.fail("does not begin as a GGUF file does")
    version = walk.integer("I")
    if version and not version & 0xFFFF:
        raise UnsupportedModelError(f"{walk.name} is a big-endian GGUF file.")
    if version not in (2, 3):
        raise UnsupportedModelError(f"{walk.name} has GGUF version {version}; versions 2 and 3 are read.")


def _read_metadata(walk: "_Walk", count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(count):
        key = walk.string()
        if key in metadata:
            walk.fail(f"has the key {key!r} twice")
        metadata[key] = walk.value(walk.integer("I"))
    return metadata


def _read_tensor_table(walk: "_Walk", count: int, alignment: int) -> tuple[TensorEntry, ...]:
    if alignment == 0 or alignment & (alignment - 1):
        walk.fail(f"has the alignment {alignment}, which is not a power of two")
    table: dict[str, tuple[tuple[int, ...], str, int, int]] = {}
    for _ in range(count):
        tensor = walk.string()
        if tensor in table:
            walk.fail(f"has the tensor {tensor!r} twice")
        table[tensor] = _read_tensor_info(walk, tensor)
    base = -(-walk.position // alignment) * alignment
    for tensor, (_, _, offset, size) in table.items():
        if offset % alignment:
            walk.fail(f"places its tensor {tensor!r} off the alignment of {alignment} bytes")
        if base + offset + size > walk.file_size:
            walk.fail(f"places its tensor {tensor!r} where the file has ended; it may be truncated")
    return tuple(
        TensorEntry(tensor, shape, dtype, base + offset, size)
        for tensor, (shape, dtype, offset, size) in table.items()
    )


def _read_tensor_info(walk: "_Walk", tensor: str) -> tuple[tuple[int, ...], str, int, int]:
    """Return shape, storage, offset from the first tensor, and bytes."""
    num_dimensions = walk.integer("I")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        walk.fail(f"gives its tensor {tensor!r} {num_dimensions} dimensions")
    contiguous_first = [walk.integer("Q") for _ in range(num_dimensions)]
    shape = tuple(reversed(contiguous_first))
    number = walk.integer("I")
    kind = _STORAGE.get(number)
    if kind is None:
        raise UnsupportedModelError(f"{walk.name} stores its tensor {tensor!r} in the unknown type {number}.")
    block_length, block_bytes = GGML_QUANT_SIZES[kind]
    if shape[-1] % block_length or 0 in shape:
        walk.fail(f"gives its tensor {tensor!r} the shape {shape}, which {kind.name} cannot have")
    return shape, kind.name, walk.integer("Q"), math.prod(shape) // block_length * block_bytes


class _HeaderEndsError(Exception):
    """The header goes on behind the bytes that were read of the file."""


class _Walk:
    """A position in the file's first bytes that only moves forward, and never past their end."""

    def __init__(self, data: memoryview, file_size: int, name: str) -> None:
        self.data = data
        self.file_size = file_size
        self.name = name
        self.position = 0
        self.num_values = 0

    def fail(self, what: str) -> NoReturn:
        raise CorruptCheckpointError(f"{self.name} {what}.", hint="Fetch the file again.")

    def fail_at_end(self, end: int) -> NoReturn:
        if len(self.data) < self.file_size and end <= self.file_size:
            raise _HeaderEndsError
        self.fail("ends inside its header; it may be truncated")

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self.data):
            self.fail_at_end(end)
        view = self.data[self.position : end]
        self.position = end
        return view

    def integer(self, code: str) -> int:
        value: int = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]
        return value

    def unsigned(self, metadata: dict[str, object], key: str, default: int) -> int:
        value = metadata.get(key, default)
        if not isinstance(value, int) or value < 0:
            self.fail(f"has {value!r} under {key!r}, where a number belongs")
        return value

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        # The one loop that runs a hundred thousand times; hence by hand, without `take`.
        data, position, limit = self.data, self.position, len(self.data)
        length_at = struct.Struct("<Q").unpack_from
        found = []
        try:
            for _ in range(count):
                start = position + 8
                position = start + length_at(data, position)[0]
                if position > limit:
                    self.fail_at_end(position)
                found.append(str(data[start:position], "utf-8"))
        except struct.error:
            self.fail_at_end(position + 8)
        except UnicodeDecodeError:
            self.fail("has a string that is not UTF-8")
        self.position = position
        return found

    def value(self, number: int) -> object:
        if number == GGUFValueType.STRING:
            return self.string()
        if number == GGUFValueType.ARRAY:
            return self.array(self.integer("I"), self.integer("Q"))
        return self.scalars(number, 1)[0]

    def array(self, number: int, count: int) -> list[object]:
        self.num_values += count
        if self.num_values > _MAX_VALUES:
            size = struct.calcsize("<" + _SCALARS[number]) if number in _SCALARS else 8
            if self.position + count * size > self.file_size:
                self.fail_at_end(self.position + count * size)
            self.fail(f"has lists of {self.num_values} values, which no model has")
        if number == GGUFValueType.STRING:
            return list(self.strings(count))
        return self.scalars(number, count)

    def scalars(self, number: int, count: int) -> list[object]:
        code = _SCALARS.get(number)
        if code is None:
            self.fail(f"has a value of type {number}, which is not known here")
        size = struct.calcsize("<" + code)
        view = self.take(count * size)
        return list(struct.unpack(f"<{count}{code}", view))
