"""Reading a `.safetensors` file: a header's length, the header as JSON, and the tensors' bytes.

The header maps names to dtype, shape and offsets. Format: https://github.com/huggingface/safetensors#format
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from ratoon.checkpoint.tensor import RawTensor
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError

_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip


def read_tensors(data: memoryview, file: Path) -> Iterator[RawTensor]:
    """Yield the tensors of a file's bytes as views of them; errors name `file`.

    Raises `CorruptCheckpointError` where they are no such file, `UnsupportedModelError` for an unknown type.
    """

    def fail(what: str) -> NoReturn:
        raise CorruptCheckpointError(f"{file} {what}.", hint="Fetch the file again.")

    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        fail("ends inside its header; it may be truncated")
    try:
        header = json.loads(bytes(data[8:start]))
        header.pop("__metadata__", None)
        entries = [_entry(name, **fields) for name, fields in header.items()]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        fail("has a damaged header")
    for name, dtype, shape, begin, end in entries:
        if dtype not in _ITEM_BYTES:
            raise UnsupportedModelError(f"{file} stores its tensor {name!r} in the unknown type {dtype}.")
        if begin < 0 or min(shape, default=1) < 1 or end - begin != math.prod(shape) * _ITEM_BYTES[dtype]:
            fail(f"gives its tensor {name!r} a size that does not fit its shape")
        if start + end > len(data):
            fail(f"places its tensor {name!r} where the file has ended; it may be truncated")
        yield RawTensor(name, shape, dtype, data[start + begin : start + end])


def _entry(
    name: str, dtype: str, shape: list[int], data_offsets: list[int]
) -> tuple[str, str, tuple[int, ...], int, int]:
    begin, end = map(int, data_offsets)
    return name, str(dtype), tuple(map(int, shape)), begin, end
