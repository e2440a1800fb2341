import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from ratoon.checkpoint import sidecar as room
from ratoon.checkpoint.model_file import ModelFile
from ratoon.checkpoint.sidecar import Sidecar, load_sidecar, save_sidecar
from ratoon.errors import UsageError

SIDECAR = Sidecar({"digest": "ab", "list": [1, 2.5, "ü"]}, '{"model":"ü"}')


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


def test_what_was_saved_is_loaded(model: Path) -> None:
    assert load_sidecar(model, [ModelFile(model)]) is None
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    assert load_sidecar(model, [ModelFile(model)]) == SIDECAR
    assert sorted(path.name for path in model.parent.iterdir()) == ["model.gguf", "model.gguf.ratoon"]


def test_a_folder_keeps_it_inside(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    save_sidecar(tmp_path, [ModelFile(file)], SIDECAR)
    assert (tmp_path / ".ratoon").exists()
    assert load_sidecar(tmp_path, [ModelFile(file)]) == SIDECAR


def exchange(model: Path, content: bytes) -> None:
    model.write_bytes(content)


def exchange_by_rename(model: Path, content: bytes) -> None:
    other = model.with_name("other")
    other.write_bytes(content)
    other.rename(model)


@pytest.mark.parametrize("content", [b"more weights", b"weighty"])
@pytest.mark.parametrize("write", [exchange, exchange_by_rename])
def test_another_model_never_passes_for_the_old_one_though_its_size_and_time_are_the_same(
    model: Path, write: Callable[[Path, bytes], None], content: bytes
) -> None:
    before = model.stat()
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    write(model, content)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert load_sidecar(model, [ModelFile(model)]) is None


def test_a_stamp_tells_files_apart_by_content_where_the_file_system_has_no_times(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = model.stat()
    monkeypatch.setattr(os, "fstat", lambda _: status)
    stamp = ModelFile(model).stamp()
    assert ModelFile(model).stamp() == stamp
    model.write_bytes(b"weighty")
    assert ModelFile(model).stamp() != stamp


def test_a_model_that_is_exchanged_while_it_is_open_does_not_leave_its_facts_to_the_new_one(
    model: Path,
) -> None:
    file = ModelFile(model)
    exchange_by_rename(model, b"weighty")
    save_sidecar(model, [file], SIDECAR)
    assert load_sidecar(model, [ModelFile(model)]) is None


def test_a_moved_or_copied_model_is_read_once_more(model: Path, tmp_path: Path) -> None:
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    copied = tmp_path / "elsewhere"
    shutil.copytree(model.parent, copied, ignore=lambda *_: ["elsewhere", "cache-home"])
    assert load_sidecar(copied / model.name, [ModelFile(copied / model.name)]) is None


def test_one_of_another_format_version_is_ignored(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    monkeypatch.setattr(room, "_FORMAT_VERSION", 99)
    assert load_sidecar(model, [ModelFile(model)]) is None


def test_a_damaged_one_is_ignored(model: Path) -> None:
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    place = model.with_name("model.gguf.ratoon")
    whole = place.read_bytes()
    for length in range(len(whole)):
        place.write_bytes(whole[:length])
        assert load_sidecar(model, [ModelFile(model)]) is None
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        place.write_bytes(changed)
        assert load_sidecar(model, [ModelFile(model)]) in (None, SIDECAR)


def test_it_goes_to_the_cache_folder_where_the_models_own_cannot_be_written(
    model: Path, cache_home: Path
) -> None:
    model.with_name("model.gguf.ratoon").mkdir()  # in the way, so that not even root can write there
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    assert load_sidecar(model, [ModelFile(model)]) == SIDECAR
    assert len(list((cache_home / "ratoon/sidecars").iterdir())) == 1


def test_nothing_happens_where_no_place_can_be_written(model: Path, cache_home: Path) -> None:
    model.with_name("model.gguf.ratoon").mkdir()
    cache_home.write_text("not a folder")
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    assert load_sidecar(model, [ModelFile(model)]) is None


def test_without_a_home_folder_it_lies_beside_the_model_or_nowhere(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> NoReturn:
        raise UsageError("no home")

    monkeypatch.setattr(room, "user_cache_folder", homeless)
    assert load_sidecar(model, [ModelFile(model)]) is None
    model.with_name(model.name + ".ratoon").mkdir()  # where no file can be written
    save_sidecar(model, [ModelFile(model)], SIDECAR)
    assert load_sidecar(model, [ModelFile(model)]) is None
