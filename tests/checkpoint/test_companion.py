import os
from pathlib import Path
from typing import NoReturn

import pytest

from ratoon.checkpoint import companion as room
from ratoon.checkpoint.companion import Companion, load_companion, save_companion
from ratoon.errors import UsageError

COMPANION = Companion({"digest": "ab", "list": [1, 2.5, "ü"]}, '{"model":"ü"}')


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


def test_what_was_saved_is_loaded(model: Path) -> None:
    assert load_companion(model, [model]) is None
    save_companion(model, [model], COMPANION)
    assert load_companion(model, [model]) == COMPANION
    assert sorted(path.name for path in model.parent.iterdir()) == ["model.gguf", "model.gguf.ratoon"]


def test_a_folder_keeps_it_inside(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"weights")
    save_companion(tmp_path, [file], COMPANION)
    assert (tmp_path / ".ratoon").exists()
    assert load_companion(tmp_path, [file]) == COMPANION


def test_another_size_or_time_of_the_model_makes_it_stale(model: Path) -> None:
    save_companion(model, [model], COMPANION)
    stat = model.stat()
    os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert load_companion(model, [model]) is None
    model.write_bytes(b"more weights")
    os.utime(model, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert load_companion(model, [model]) is None


def test_a_moved_model_keeps_its_companion(model: Path, tmp_path: Path) -> None:
    save_companion(model, [model], COMPANION)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in (model, model.with_name("model.gguf.ratoon")):
        file.rename(moved / file.name)
    assert load_companion(moved / model.name, [moved / model.name]) == COMPANION


def test_one_of_another_format_version_is_ignored(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_companion(model, [model], COMPANION)
    monkeypatch.setattr(room, "_FORMAT_VERSION", 99)
    assert load_companion(model, [model]) is None


def test_a_damaged_one_is_ignored(model: Path) -> None:
    save_companion(model, [model], COMPANION)
    place = model.with_name("model.gguf.ratoon")
    whole = place.read_bytes()
    for length in range(len(whole)):
        place.write_bytes(whole[:length])
        assert load_companion(model, [model]) is None
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 0x10
        place.write_bytes(changed)
        assert load_companion(model, [model]) in (None, COMPANION)


def test_it_goes_to_the_cache_folder_where_the_models_own_cannot_be_written(
    model: Path, cache_home: Path
) -> None:
    model.with_name("model.gguf.ratoon").mkdir()  # in the way, so that not even root can write there
    save_companion(model, [model], COMPANION)
    assert load_companion(model, [model]) == COMPANION
    assert len(list((cache_home / "ratoon/companions").iterdir())) == 1


def test_nothing_happens_where_no_place_can_be_written(model: Path, cache_home: Path) -> None:
    model.with_name("model.gguf.ratoon").mkdir()
    cache_home.write_text("not a folder")
    save_companion(model, [model], COMPANION)
    assert load_companion(model, [model]) is None


def test_without_a_home_folder_it_lies_beside_the_model_or_nowhere(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> NoReturn:
        raise UsageError("no home")

    monkeypatch.setattr(room, "user_cache_folder", homeless)
    assert load_companion(model, [model]) is None
    model.with_name(model.name + ".ratoon").mkdir()  # where no file can be written
    save_companion(model, [model], COMPANION)
    assert load_companion(model, [model]) is None
