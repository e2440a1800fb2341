"""Files of rows as clients send them: what numpy and safetensors write is read, all else is refused."""

import base64
import io
import json
import pickle
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.errors import InvalidParameterError
from ratoon.server.openai.prompts import read_rows

WIDTH = 3
ROWS = np.arange(12, dtype=np.float32).reshape(4, WIDTH)


def npy(array: Any, save: Callable[..., None] = np.save) -> bytes:
    file = io.BytesIO()
    save(file, array)
    return file.getvalue()


def npy_of(header: str, data: bytes = ROWS.tobytes(), version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin-1")
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(text))
    return b"\x93NUMPY" + version + length + text + data


def safetensors(header: object, data: bytes = ROWS.tobytes()) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str = "F32", shape: Any = (4, WIDTH), offsets: Any = (0, 48)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


GOOD_HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }\n"
BF16 = struct.pack("<6H", 0x3F80, 0, 0xC000, 1, 2, 3)

GOOD = {
    "npy": (npy(ROWS), "F32", ROWS.tobytes()),
    "npy of float16": (npy(ROWS.astype(np.float16)), "F16", ROWS.astype(np.float16).tobytes()),
    "npy by another writer": (
        npy_of("{'shape':(4,3),'fortran_order':False,'descr':'<f4'}"),
        "F32",
        ROWS.tobytes(),
    ),
    "npy 2": (npy_of(GOOD_HEADER, version=b"\x02\x00"), "F32", ROWS.tobytes()),
    "npy 3": (npy_of(GOOD_HEADER, version=b"\x03\x00"), "F32", ROWS.tobytes()),
    "safetensors": (safetensors({"rows": entry()}), "F32", ROWS.tobytes()),
    "safetensors with metadata": (
        safetensors({"__metadata__": {"format": "np"}, "any name": entry()}),
        "F32",
        ROWS.tobytes(),
    ),
    **{
        f"safetensors with a header of {size} bytes, which begins like a pickle": (
            safetensors(json.dumps({"rows": entry()}).ljust(size).encode()),
            "F32",
            ROWS.tobytes(),
        )
        for size in (128, 0x280, 0x480)
    },
    "safetensors of bfloat16": (safetensors({"r": entry("BF16", (2, 3), (0, 12))}, BF16), "BF16", BF16),
}


@pytest.mark.parametrize("name", GOOD)
def test_rows_are_read_as_they_were_written(name: str) -> None:
    file, dtype, data = GOOD[name]
    rows = read_rows(encoded(file), WIDTH)
    assert (rows.dtype, rows.data) == (dtype, data)


def test_the_format_of_the_file_is_no_part_of_the_rows() -> None:
    assert read_rows(encoded(npy(ROWS)), WIDTH) == read_rows(encoded(safetensors({"r": entry()})), WIDTH)


class Bomb:
    """Tells if it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("it was unpickled",)


OBJECTS = np.array([[Bomb()] * WIDTH], dtype=object)

BAD_TEXT = {
    "no base64": ("!!!!", "base64"),
    "bad padding": ("AAA", "base64"),
    "letters of another alphabet": ("éAAA", "base64"),
    "url-safe": ("_-_-", "base64"),
    "line breaks": ("AAAA\nAAAA", "base64"),
    "nothing": ("", "neither"),
}
BAD_FILE = {
    "a pickle": (pickle.dumps(Bomb()), "never loaded"),
    "an archive, as torch.save writes": (b"PK\x03\x04" + bytes(100), "never loaded"),
    "an npz": (npy(ROWS, np.savez), "never loaded"),
    "objects": (npy(OBJECTS), r"stored as `\|O`"),
    "big-endian": (npy(ROWS.astype(">f4")), "stored as `>f4`"),
    "doubles": (npy(ROWS.astype(np.float64)), "stored as `<f8`"),
    "integers": (npy(ROWS.astype(np.int32)), "stored as `<i4`"),
    "records": (npy(np.zeros((4, 3), [("a", "<f4")])), "no plain array"),
    "columns": (npy(np.asfortranarray(ROWS)), "columns, not rows"),
    "one row without its axis": (npy(ROWS[0]), r"shape \[3\]"),
    "a batch": (npy(ROWS[None]), r"shape \[1, 4, 3\]"),
    "a number": (npy(np.float32(1)), r"shape \[\]"),
    "no rows": (npy(ROWS[:0]), r"shape \[0, 3\]"),
    "too wide": (npy(ROWS.reshape(3, 4)), r"shape \[3, 4\]"),
    "NaN": (npy(np.where(ROWS == 5, np.nan, ROWS).astype(np.float32)), "NaN or infinity"),
    "infinity": (npy(np.where(ROWS == 11, -np.inf, ROWS).astype(np.float16)), "NaN or infinity"),
    "a cut npy": (npy(ROWS)[:-1], "take 48 bytes, not 47"),
    "an npy and more": (npy(ROWS) + b"\x00", "take 48 bytes, not 49"),
    "an npy of nothing": (b"\x93NUMPY", "ends inside its header"),
    "an npy without its length": (b"\x93NUMPY\x01\x00", "ends inside its header"),
    "an npy that ends in its header": (npy(ROWS)[:60], "ends inside its header"),
    "a very long header": (npy_of(" " * 20_000 + GOOD_HEADER), "very long"),
    "a header of 4 GB": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "very long"),
    "a shape of all memory": (
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 3)}"),
        "take 1199999999988 bytes",
    ),
    "a shape of many digits": (
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ", 3)}"),
        "this model takes",
    ),
    "a negative shape": (
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-4, 3)}"),
        "no plain array",
    ),
    "a header of code": (npy_of("__import__('os').abort()"), "no plain array"),
    "a text": (b"hello there", "neither"),
    "eight bytes": (b"\xff" * 8, "neither"),
    "no tensor": (safetensors({}), "has 0 tensors"),
    "two tensors": (safetensors({"a": entry(), "b": entry()}), "has 2 tensors"),
    "safetensors of doubles": (safetensors({"a": entry("F64", (2, 3))}), "stored as F64"),
    "a tensor type of the future": (safetensors({"a": entry("F3")}), "unknown type F3"),
    "a tensor that is no pair of sizes": (safetensors({"a": entry(shape=[12])}), r"shape \[12\]"),
    "a tensor beyond the end": (safetensors({"a": entry()}, ROWS.tobytes()[:-1]), "truncated"),
    "a tensor before the beginning": (safetensors({"a": entry(offsets=(-8, 40))}), "does not fit"),
    "a tensor that is larger than it says": (safetensors({"a": entry(shape=[5, 3])}), "does not fit"),
    "a tensor of all memory": (
        safetensors({"a": entry(shape=[10**30, 3], offsets=(0, 12 * 10**30))}),
        "truncated",
    ),
    "a tensor without rows": (safetensors({"a": entry(shape=[0, 3], offsets=(0, 0))}), "does not fit"),
    "safetensors with NaN": (safetensors({"a": entry()}, b"\xff" * 48), "NaN or infinity"),
    "a header that is no JSON": (safetensors(b"{"), "damaged header"),
    "a header that is no object": (safetensors([]), "damaged header"),
    "a header of brackets": (safetensors(b"[" * 100_000), "damaged header"),
    "a tensor that is a number": (safetensors({"a": 3}), "damaged header"),
    "sizes that are texts": (safetensors({"a": entry(shape=["x", 3])}), "damaged header"),
    "sizes without end": (
        safetensors(b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}'),
        "damaged",
    ),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_what_is_no_base64_of_a_file_is_refused(name: str) -> None:
    text, message = BAD_TEXT[name]
    with pytest.raises(InvalidParameterError, match=message):
        read_rows(text, WIDTH)


@pytest.mark.parametrize("name", BAD_FILE)
def test_files_that_hold_no_rows_are_refused(name: str) -> None:
    file, message = BAD_FILE[name]
    with pytest.raises(InvalidParameterError, match=message):
        read_rows(encoded(file), WIDTH)


@given(st.data())
def test_damage_gives_rows_or_a_clear_error(data: st.DataObject) -> None:
    """Bytes changed or cut out of a good file."""
    file = bytearray(data.draw(st.sampled_from([file for file, _, _ in GOOD.values()])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(file) - 1))
        file[place : place + data.draw(st.sampled_from([1, 1, 1, 8]))] = data.draw(st.binary(max_size=2))
    try:
        rows = read_rows(encoded(bytes(file)), WIDTH)
    except InvalidParameterError:
        return
    assert len(rows.data) % (rows.num_rows * WIDTH) == 0
