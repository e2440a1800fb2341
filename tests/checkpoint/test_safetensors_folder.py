import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from ratoon.checkpoint.safetensors_folder import SafetensorsFolder
from ratoon.errors import (
    CheckpointError,
    CorruptCheckpointError,
    MissingCheckpointError,
    UnsupportedModelError,
)
from ratoon.util.progress import no_progress

WriteFolder = Callable[..., Path]


def open_quietly(folder: Path) -> SafetensorsFolder:
    return SafetensorsFolder(folder, no_progress)


def test_tensors_are_views_with_ggufs_names_of_storage(write_folder: WriteFolder) -> None:
    tensors = {"b": ("BF16", (2, 3), bytes(range(12))), "a": ("F32", (), bytes(4))}
    checkpoint = open_quietly(write_folder(tensors=tensors))
    assert checkpoint.tensor_names() == ("b", "a")
    tensor = checkpoint.tensor("b")
    assert (tensor.dtype, tensor.shape, bytes(tensor.data)) == ("BF16", (2, 3), bytes(range(12)))
    assert tensor.data.readonly
    with pytest.raises(CorruptCheckpointError, match="no tensor 'c'"):
        checkpoint.tensor("c")


def test_the_files_beside_the_weights_are_metadata(write_folder: WriteFolder) -> None:
    folder = write_folder({"model_type": "mistral", "hidden_size": 8})
    (folder / "generation_config.json").write_text('{"eos_token_id": 7}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    checkpoint = open_quietly(folder)
    assert checkpoint.architecture == "llama"
    assert checkpoint.metadata["hidden_size"] == 8
    assert checkpoint.metadata["generation_config.json"] == {"eos_token_id": 7}
    assert checkpoint.metadata["chat_template.jinja"] == "{{ messages }}"
    assert checkpoint.tokenizer_json == '{"version": "1.0"}'


def test_an_index_says_which_files_count(write_folder: WriteFolder) -> None:
    folder = write_folder(tensors={"x": ("F32", (1,), b"aaaa")}, file="part-1.safetensors")
    write_folder(tensors={"y": ("F32", (1,), b"bbbb")}, file="part-2.safetensors")
    write_folder(tensors={"x": ("F32", (1,), b"aaaa")}, file="consolidated.safetensors")
    index = {"weight_map": {"x": "part-1.safetensors", "y": "part-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert open_quietly(folder).tensor_names() == ("x", "y")
    (folder / "part-2.safetensors").unlink()
    with pytest.raises(MissingCheckpointError, match=r"part-2\.safetensors"):
        open_quietly(folder)


def test_the_same_tensor_in_two_files_is_refused(write_folder: WriteFolder) -> None:
    write_folder(file="one.safetensors")
    with pytest.raises(CorruptCheckpointError, match="twice"):
        open_quietly(write_folder(file="two.safetensors"))


def test_the_digest_is_kept_and_does_not_depend_on_the_order_in_the_file(write_folder: WriteFolder) -> None:
    x, y = ("F32", (1,), b"aaaa"), ("F32", (1,), b"bbbb")
    folder = write_folder(tensors={"x": x, "y": y})
    digest = open_quietly(folder).digest
    assert (folder / ".ratoon").exists()
    assert open_quietly(folder).digest == digest
    assert open_quietly(write_folder(tensors={"y": y, "x": x}, name="other")).digest == digest
    assert open_quietly(write_folder(tensors={"x": y, "y": x}, name="swapped")).digest != digest


def test_a_file_truncated_anywhere_is_refused(write_folder: WriteFolder) -> None:
    folder = write_folder(tensors={"x": ("F32", (2, 2), bytes(16)), "y": ("F16", (3,), bytes(6))})
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(CorruptCheckpointError):
            open_quietly(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"x": 1}',
        b'{"x": {"dtype": "F32", "shape": [1]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b'{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}',
        b'{"x": {"dtype": "F32", "shape": [null], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [Infinity], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_damaged_header_is_refused(write_folder: WriteFolder, header: bytes) -> None:
    folder = write_folder()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(CorruptCheckpointError):
        open_quietly(folder)


def test_an_unknown_storage_is_named(write_folder: WriteFolder) -> None:
    with pytest.raises(UnsupportedModelError, match="F4"):
        open_quietly(write_folder(tensors={"x": ("F4", (2,), bytes(1))}))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", b"{"),
        ("config.json", b"[]"),
        ("config.json", b""),
        ("tokenizer_config.json", b"\xff"),
        ("generation_config.json", b"null"),
        ("model.safetensors.index.json", b"{}"),
    ],
)
def test_a_damaged_configuration_is_named(write_folder: WriteFolder, name: str, content: bytes) -> None:
    folder = write_folder()
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        open_quietly(folder)
    assert name in caught.value.message


def test_what_is_absent_is_named(write_folder: WriteFolder) -> None:
    folder = write_folder({"hidden_size": 8})
    checkpoint = open_quietly(folder)
    with pytest.raises(MissingCheckpointError, match=r"tokenizer\.json"):
        _ = checkpoint.tokenizer_json
    with pytest.raises(CorruptCheckpointError, match="model_type"):
        _ = checkpoint.architecture
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingCheckpointError, match="safetensors"):
        open_quietly(folder)
