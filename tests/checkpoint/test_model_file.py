import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ratoon.checkpoint.model_file import ModelFile
from ratoon.checkpoint.tensor import FileRange, RawTensor
from ratoon.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(bytes(range(64)))
    return path


def test_bytes_are_read_at_any_place(path: Path) -> None:
    file = ModelFile(path)
    assert file.size == 64
    assert file.read(3, 4) == bytes([3, 4, 5, 6])
    assert file.read(3, 4).readonly
    assert file.read_rows(8, 2, [3, 0, 3]) == bytes([14, 15, 8, 9, 14, 15])


def truncate(path: Path) -> None:
    os.truncate(path, 10)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def overwrite(path: Path) -> None:
    before = path.stat()
    with path.open("r+b") as file:
        file.write(bytes(64))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [truncate, empty, append, overwrite])
def test_a_file_that_is_changed_in_place_is_refused_at_every_read(
    path: Path, change: Callable[[Path], None]
) -> None:
    file = ModelFile(path)
    tensor = RawTensor("x", (8, 4), "I8", FileRange(file, 32, 32))
    change(path)
    with pytest.raises(CheckpointError, match="was changed while it was in use"):
        file.read(0, 1)
    with pytest.raises(CheckpointError, match="was changed while it was in use"):
        _ = tensor.data
    with pytest.raises(CheckpointError, match="was changed while it was in use"):
        tensor.rows([7])


def test_a_file_that_is_replaced_or_deleted_stays_readable(path: Path) -> None:
    file = ModelFile(path)
    other = path.with_name("other")
    other.write_bytes(b"other")
    other.rename(path)
    assert file.read(0, 64) == bytes(range(64))
    path.unlink()
    assert file.read(0, 64) == bytes(range(64))


def test_rows_and_chunks_are_the_same_from_memory_and_from_a_file(path: Path) -> None:
    stored = RawTensor("x", (8, 4), "I8", FileRange(ModelFile(path), 32, 32))
    in_memory = RawTensor("x", (8, 4), "I8", memoryview(bytes(range(32, 64))))
    for tensor in (stored, in_memory):
        assert tensor.num_bytes == 32
        assert tensor.data == bytes(range(32, 64))
        assert list(tensor.chunks(24)) == [bytes(range(32, 56)), bytes(range(56, 64))]
        assert tensor.rows([7, 0]) == bytes([60, 61, 62, 63, 32, 33, 34, 35])


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointError):
        ModelFile(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="not a regular file"):
        ModelFile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a regular file"):
        ModelFile(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with pytest.raises(CorruptCheckpointError, match="is empty"):
        ModelFile(tmp_path / "empty")


def test_its_descriptor_is_closed_with_it(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    files = [ModelFile(path) for _ in range(20)]
    del files
    assert before == 0 or len(os.listdir("/proc/self/fd")) == before
