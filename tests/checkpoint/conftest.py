"""Builders of tiny model files."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]

TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "<tag>"]
KINDS = [2, 3, 3, 1, 1, 1, 4]
VOCABULARY = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": KINDS,
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test's cache folder to itself."""
    home = tmp_path / "cache-home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home


@pytest.fixture
def write_gguf(tmp_path: Path) -> WriteGguf:
    """Return a writer of GGUF files: metadata in Python's types, tensors as arrays or (bytes, storage)."""

    def write(
        metadata: Mapping[str, object] = VOCABULARY,
        tensors: Mapping[str, NDArray[np.generic]] | None = None,
        *,
        architecture: str = "llama",
        name: str = "model.gguf",
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            _add(writer, key, value)
        for tensor, array in (tensors or {"x.weight": np.arange(64, dtype=np.float32)}).items():
            writer.add_tensor(tensor, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        assert isinstance(value, list)
        writer.add_array(key, value)


@pytest.fixture
def write_folder(tmp_path: Path) -> WriteFolder:
    """Return a writer of folders in Hugging Face's layout; tensors as (dtype, shape, bytes)."""

    def write(
        config: Mapping[str, object] | None = None,
        tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]] | None = None,
        *,
        name: str = "folder",
        file: str = "model.safetensors",
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config or {"model_type": "llama"}))
        header, data = {}, b""
        for tensor, (dtype, shape, content) in (tensors or {"x.weight": ("F32", (2, 2), bytes(16))}).items():
            header[tensor] = {
                "dtype": dtype,
                "shape": shape,
                "data_offsets": [len(data), len(data) + len(content)],
            }
            data += content
        text = json.dumps(header).encode()
        (folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)
        return folder

    return write
