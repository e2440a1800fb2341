"""`InputRows`: rows of input embeddings that stand in a prompt where tokens would.

They are kept as the bytes in which they came, little-endian, from the caller to the device that computes
with them. A row is what the first layer reads: where a family scales the rows of its token table, these are
taken as scaled already.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from ratoon.errors import InvalidParameterError
from ratoon.identity.digest import digest, encode

EXPONENTS = {"F32": ("<I", 0x7F800000), "F16": ("<H", 0x7C00), "BF16": ("<H", 0x7F80)}
"""Storages of rows: the unsigned integer of a number's size, and the exponent's bits in it.

These bits are all set in infinities and NaN, and in nothing else (IEEE 754).
"""


@dataclass(frozen=True, slots=True)
class InputRows:
    """Finite numbers [num_rows, width] of a storage in `EXPONENTS`, row after row in `data`.

    `content` digests all that decides the rows, and stands for them in the keys of blocks.
    """

    dtype: str
    num_rows: int
    data: bytes = field(repr=False)
    content: bytes

    def cut(self, first: int, end: int) -> bytes:
        """Return the bytes of rows `first` to `end`."""
        row_bytes = len(self.data) // self.num_rows
        return self.data[first * row_bytes : end * row_bytes]


def input_rows(
    dtype: str, shape: Sequence[int], data: bytes | memoryview, *, width: int, content: bytes | None = None
) -> InputRows:
    """Check rows for a model that reads `width` numbers per position; digest them unless `content` is given.

    The digest covers dtype, shape and bytes. Raises `InvalidParameterError`, and copies nothing before shape
    and size are right.
    """
    if dtype not in EXPONENTS:
        raise InvalidParameterError(
            f"Input rows are stored as {dtype}.", hint="They must be float32, float16 or bfloat16."
        )
    if len(shape) != 2 or shape[0] < 1 or shape[1] != width:
        raise InvalidParameterError(
            f"Input rows have the shape {list(shape)}; this model takes [n, {width}], and n is at least 1."
        )
    size = shape[0] * width * struct.calcsize(EXPONENTS[dtype][0])
    view = memoryview(data)
    if view.nbytes != size:
        raise InvalidParameterError(
            f"Input rows of the shape {list(shape)} take {size} bytes, not {view.nbytes}."
        )
    data = view.tobytes()
    if not _are_finite(dtype, data):
        raise InvalidParameterError("Input rows hold NaN or infinity.")
    if content is None:
        content = digest(encode(("input rows", dtype, tuple(shape), data)))
    return InputRows(dtype, shape[0], data, content)


def _are_finite(dtype: str, data: bytes) -> bool:
    """Whether no number has all bits of its exponent set.

    Highest bytes alone clear numbers of any usual size, and can be looked at without a loop in Python.
    """
    code, exponent = EXPONENTS[dtype]
    size = struct.calcsize(code)
    top = exponent >> 8 * (size - 1)
    highest = data[size - 1 :: size]
    if len(highest.translate(None, bytes(byte for byte in range(256) if byte & top == top))) == len(highest):
        return True
    return all(bits & exponent != exponent for (bits,) in struct.iter_unpack(code, data))
