import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratoon.checkpoint import gguf_header as room
from ratoon.checkpoint.gguf_header import GgufHeader, parse_gguf_header, read_gguf_header
from ratoon.checkpoint.model_file import ModelFile
from ratoon.errors import CheckpointError, CorruptCheckpointError, UnsupportedModelError

WriteGguf = Callable[..., Path]


def parse(data: memoryview) -> GgufHeader:
    return parse_gguf_header(data, len(data), "file")


def small_file(write_gguf: WriteGguf) -> bytes:
    metadata = {
        "llama.block_count": 3,
        "llama.rope.freq_base": 0.5,
        "flag": True,
        "name": "größe",
        "tokens": ["a", "bc", ""],
        "scores": [0.5, -1.0],
    }
    tensors = {"one": np.arange(12, dtype=np.float32).reshape(3, 4), "two": np.ones(5, np.float16)}
    return write_gguf(metadata, tensors).read_bytes()


def test_metadata_and_tensor_table_are_read(write_gguf: WriteGguf) -> None:
    data = small_file(write_gguf)
    header = parse(memoryview(data))
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 3,
        "llama.rope.freq_base": 0.5,
        "flag": True,
        "name": "größe",
        "tokens": ["a", "bc", ""],
        "scores": [0.5, -1.0],
    }
    one, two = header.tensors
    assert (one.name, one.shape, one.dtype, one.size) == ("one", (3, 4), "F32", 48)
    assert (two.name, two.shape, two.dtype, two.size) == ("two", (5,), "F16", 10)
    assert data[one.start : one.start + one.size] == np.arange(12, dtype=np.float32).tobytes()


def test_the_real_model_is_read_as_the_gguf_package_reads_it(smollm2_path: Path) -> None:
    reader = gguf.GGUFReader(smollm2_path)
    header = read_gguf_header(ModelFile(smollm2_path))
    assert list(header.metadata) == [key for key in reader.fields if not key.startswith("GGUF.")]
    for key in ("llama.block_count", "general.name", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"):
        assert header.metadata[key] == reader.fields[key].contents()
    for ours, theirs in zip(header.tensors, reader.tensors, strict=True):
        assert ours.name == theirs.name
        assert ours.shape == tuple(theirs.shape.tolist()[::-1])
        assert ours.dtype == theirs.tensor_type.name
        assert (ours.start, ours.size) == (theirs.data_offset, theirs.n_bytes)


def test_a_file_truncated_anywhere_is_refused(write_gguf: WriteGguf) -> None:
    data = small_file(write_gguf)
    whole = parse(memoryview(data))
    end = max(tensor.start + tensor.size for tensor in whole.tensors)
    for length in range(end):
        with pytest.raises(CorruptCheckpointError):
            parse(memoryview(data[:length]))
    assert parse(memoryview(data[:end])) == whole


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(changes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_file_is_read_or_refused_but_never_breaks_the_reader(
    write_gguf: WriteGguf, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(small_file(write_gguf))
    for place, value in changes:
        data[place % len(data)] = value
    with suppress(CheckpointError):
        header = parse(memoryview(data))
        assert all(tensor.start + tensor.size <= len(data) for tensor in header.tensors)


def raw_file(*, version: int = 3, tensors: int = 0, keys: int = 0, rest: bytes = b"") -> memoryview:
    return memoryview(b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest)


def key(name: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return struct.pack("<Q", len(name)) + name.encode() + sizes + struct.pack("<IQ", kind, offset)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (memoryview(b"PK\x03\x04" + bytes(40)), "does not begin as a GGUF file does"),
        (raw_file(keys=1 << 60), "ends inside its header"),
        (raw_file(tensors=1 << 60), "ends inside its header"),
        (raw_file(keys=1, rest=key("k", 9, struct.pack("<IQ", 0, 1 << 62))), "ends inside its header"),
        (raw_file(keys=1, rest=key("k", 9, struct.pack("<IQ", 8, 1 << 62))), "ends inside its header"),
        (raw_file(keys=1, rest=key("k", 8, struct.pack("<Q", 1 << 63))), "ends inside its header"),
        (raw_file(keys=1, rest=key("k", 9, struct.pack("<IQ", 9, 1))), "a value of type 9"),
        (raw_file(keys=1, rest=key("k", 99, b"")), "a value of type 99"),
        (raw_file(keys=2, rest=2 * key("k", 7, b"\x01")), "has the key 'k' twice"),
        (raw_file(keys=1, rest=key("k", 8, struct.pack("<Q", 1) + b"\xff")), "not UTF-8"),
        (raw_file(keys=1, rest=key("general.alignment", 4, struct.pack("<I", 24))), "not a power of two"),
        (raw_file(keys=1, rest=key("split.count", 8, struct.pack("<Q", 0))), "where a number belongs"),
        (raw_file(tensors=1, rest=tensor("t", (), 0, 0)), "0 dimensions"),
        (raw_file(tensors=1, rest=tensor("t", (1,) * 5, 0, 0)), "5 dimensions"),
        (raw_file(tensors=1, rest=tensor("t", (0,), 0, 0)), "cannot have"),
        (raw_file(tensors=1, rest=tensor("t", (33,), 8, 0)), "Q8_0 cannot have"),
        (raw_file(tensors=1, rest=tensor("t", (1 << 63, 1 << 63), 0, 0)), "may be truncated"),
        (raw_file(tensors=1, rest=tensor("t", (1,), 0, 5)), "off the alignment"),
        (raw_file(tensors=2, rest=2 * tensor("t", (1,), 0, 0)), "has the tensor 't' twice"),
    ],
)
def test_each_contradiction_is_named(data: memoryview, part: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        parse_gguf_header(data, len(data), "model.gguf")
    assert part in caught.value.message
    assert caught.value.message.startswith("model.gguf ")


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (memoryview(b"GGUF" + struct.pack(">IQQ", 3, 0, 0)), "big-endian"),
        (raw_file(version=1), "version 1"),
        (raw_file(version=4), "version 4"),
        (raw_file(keys=1, rest=key("split.count", 2, struct.pack("<H", 2))), "split GGUF"),
        (raw_file(tensors=1, rest=tensor("t", (1,), 4, 0)), "unknown type 4"),
    ],
)
def test_what_is_not_implemented_is_named(data: memoryview, part: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        parse_gguf_header(data, len(data), "model.gguf")
    assert part in caught.value.message


def test_a_header_is_read_as_far_as_it_goes(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf({"tokens": ["token"] * 100, "scores": [0.5] * 100}, {"x": np.ones(5000, np.float32)})
    whole = read_gguf_header(ModelFile(path))
    for size in (1, 30, 333):
        monkeypatch.setattr(room, "_FIRST_READ_BYTES", size)
        assert read_gguf_header(ModelFile(path)) == whole


def test_lists_that_no_model_has_are_refused_before_they_take_memory() -> None:
    many = room._MAX_VALUES + 1
    data = raw_file(keys=1, rest=key("k", 9, struct.pack("<IQ", 0, many)) + bytes(many))
    tracemalloc.start()
    with pytest.raises(CorruptCheckpointError, match="which no model has"):
        parse(data)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
