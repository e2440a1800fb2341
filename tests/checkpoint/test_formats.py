from collections.abc import Callable
from pathlib import Path

import pytest

from ratoon.checkpoint.formats import model_at, open_checkpoint
from ratoon.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]


def test_a_path_opens_as_what_it_is(write_gguf: WriteGguf, write_folder: WriteFolder) -> None:
    assert open_checkpoint(write_gguf()).format == "gguf"
    assert open_checkpoint(write_folder()).format == "safetensors"


def test_a_folder_stands_for_the_one_gguf_in_it(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    assert model_at(path.parent) == path
    write_gguf(name="other.gguf")
    with pytest.raises(CheckpointError, match="several") as caught:
        model_at(path.parent)
    assert caught.value.hint is not None
    assert "other.gguf" in caught.value.hint


def test_a_folder_may_hold_a_configuration_beside_its_gguf(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    (path.parent / "config.json").write_text("{}")
    assert model_at(path.parent) == path


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointError, match="nowhere"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(MissingCheckpointError, match="neither"):
        open_checkpoint(tmp_path)


def test_a_lone_safetensors_file_leads_to_its_folder(write_folder: WriteFolder) -> None:
    folder = write_folder()
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(folder / "model.safetensors")
    assert caught.value.hint is not None
    assert str(folder) in caught.value.hint


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("This is no model, and it is long enough for a header.")
    (tmp_path / "empty.gguf").touch()
    for name in ("notes.txt", "empty.gguf"):
        with pytest.raises(CorruptCheckpointError, match=name):
            open_checkpoint(tmp_path / name)
