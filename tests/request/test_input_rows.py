"""Rows are what a model can read, or nothing is made of them."""

import struct
from hashlib import sha256

import numpy as np
import pytest

from ratoon.errors import InvalidParameterError
from ratoon.request import input_rows as module
from ratoon.request.input_rows import InputRows, input_rows

VALUES = np.array([[1.0, -2.5, 0.25], [0.0, -0.0, 6.5e4]])
STORED = {
    "F32": VALUES.astype("<f4").tobytes(),
    "F16": VALUES.astype("<f2").tobytes(),
    "BF16": (VALUES.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes(),
}
NOT_FINITE = {
    "F32": [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFFFFFFF],
    "F16": [0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFFFF],
    "BF16": [0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF],
}


def make(dtype: str = "F32", data: bytes = STORED["F32"], **fields: bytes) -> InputRows:
    return input_rows(dtype, (2, 3), data, width=3, **fields)


@pytest.mark.parametrize("dtype", STORED)
def test_rows_keep_their_bytes_and_are_cut_between_positions(dtype: str) -> None:
    data = STORED[dtype]
    rows = make(dtype, data)
    assert (rows.dtype, rows.num_rows, rows.data) == (dtype, 2, data)
    assert (rows.cut(0, 1), rows.cut(1, 2), rows.cut(0, 2)) == (
        data[: len(data) // 2],
        data[len(data) // 2 :],
        data,
    )


def test_the_digest_covers_dtype_shape_and_bytes() -> None:
    data = bytes(24)
    digests = [
        input_rows("F32", (2, 3), data, width=3).content,
        input_rows("F32", (3, 2), data, width=2).content,
        input_rows("F16", (4, 3), data, width=3).content,
        input_rows("BF16", (4, 3), data, width=3).content,
        input_rows("F32", (2, 3), bytes(23) + b"\x01", width=3).content,
        input_rows("F32", (2, 3), bytes(20) + bytes([0, 0, 0, 0x80]), width=3).content,  # minus zero
    ]
    assert len(set(digests)) == len(digests)
    assert input_rows("F32", (2, 3), memoryview(data), width=3).content == digests[0]


def test_the_digest_is_pinned() -> None:
    """Keys outlive a process, so their encoding must not change unnoticed."""
    encoded = [
        b"t\x04\x00\x00\x00",
        b"s\x0a\x00\x00\x00input rows",
        b"s\x03\x00\x00\x00F32",
        b"t\x02\x00\x00\x00i\x01\x00\x00\x001i\x01\x00\x00\x002",
        b"b\x08\x00\x00\x00" + struct.pack("<2f", 1.5, -2),
    ]
    rows = input_rows("F32", (1, 2), struct.pack("<2f", 1.5, -2), width=2)
    assert rows.content == sha256(b"".join(encoded)).digest()


def test_a_digest_that_is_given_is_taken_and_none_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module, "digest")
    assert make(content=b"of an image").content == b"of an image"


@pytest.mark.parametrize(
    ("dtype", "bits"), [(dtype, bits) for dtype in NOT_FINITE for bits in NOT_FINITE[dtype]]
)
def test_what_is_not_finite_is_refused_wherever_it_stands(dtype: str, bits: int) -> None:
    code = "<u4" if dtype == "F32" else "<u2"
    for place in range(6):
        numbers = np.frombuffer(STORED[dtype], code).copy()
        numbers[place] = bits
        with pytest.raises(InvalidParameterError, match="NaN or infinity"):
            make(dtype, numbers.tobytes())


@pytest.mark.parametrize("dtype", NOT_FINITE)
def test_the_largest_numbers_are_finite(dtype: str) -> None:
    code = "<u4" if dtype == "F32" else "<u2"
    make(dtype, np.full(6, NOT_FINITE[dtype][0] - 1, code).tobytes())


@pytest.mark.parametrize("shape", [(), (6,), (0, 3), (2, 4), (3, 2), (1, 2, 3), (-2, 3), (-2, -3)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameterError, match=r"this model takes \[n, 3\]"):
        input_rows("F32", shape, bytes(24), width=3)


@pytest.mark.parametrize("size", [0, 23, 25, 48])
def test_bytes_that_do_not_make_up_the_shape_are_refused(size: int) -> None:
    with pytest.raises(InvalidParameterError, match="take 24 bytes"):
        make(data=bytes(size))


def test_a_shape_beyond_all_memory_is_refused_before_anything_is_made_of_it() -> None:
    with pytest.raises(InvalidParameterError, match="take 120000000000000 bytes, not 24"):
        input_rows("F32", (10**13, 3), bytes(24), width=3)


@pytest.mark.parametrize("dtype", ["F64", "I32", "Q8_0", "", "f32"])
def test_another_storage_is_refused(dtype: str) -> None:
    with pytest.raises(InvalidParameterError, match="stored as"):
        make(dtype)
