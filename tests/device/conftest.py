"""Tiny models as real files, and decoders over them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.device.model.decoder import Decoder
from ratoon.device.model.load_decoder import load_decoder
from ratoon.device.ops.protocol import KVLayout, Ops, StepInputs
from ratoon.device.ops.reference import ReferenceOps
from ratoon.spec.cache_groups import cache_groups
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import ModelSpec

Arrays = Mapping[str, NDArray[np.float32]]
WriteGguf = Callable[[Path, str, Mapping[str, int | float], Arrays], Path]
WriteSafetensors = Callable[[Path, Mapping[str, object], Arrays], Path]
OpenDecoder = Callable[..., tuple[Decoder, int]]
LoneStep = Callable[..., StepInputs]


@pytest.fixture(scope="session")
def write_gguf() -> WriteGguf:
    """Return a function of path, architecture, metadata (keys without the architecture) and tensors."""

    def write(path: Path, architecture: str, metadata: Mapping[str, int | float], tensors: Arrays) -> Path:
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in metadata.items():
            if isinstance(value, int):
                writer.add_uint32(f"{architecture}.{key}", value)
            else:
                writer.add_float32(f"{architecture}.{key}", value)
        for name, array in tensors.items():
            writer.add_tensor(name, np.ascontiguousarray(array, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture(scope="session")
def write_safetensors() -> WriteSafetensors:
    """Return a function of folder, `config.json` and tensors."""

    def write(folder: Path, config: Mapping[str, object], tensors: Arrays) -> Path:
        folder.mkdir()
        header, body = {}, b""
        for name, array in tensors.items():
            data = array.astype("<f4").tobytes()
            offsets = [len(body), len(body) + len(data)]
            header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": offsets}
            body += data
        head = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return write


@pytest.fixture(scope="session")
def open_decoder() -> OpenDecoder:
    """Return a function that loads a decoder, and how many cache groups it has. Its pool has 200 blocks."""

    def open_(
        path: Path,
        *,
        ops: Ops | None = None,
        kv_dtype: str = "f32",
        block_size: int = 16,
        change: Callable[[ModelSpec], ModelSpec] = lambda spec: spec,
    ) -> tuple[Decoder, int]:
        checkpoint, ops = open_checkpoint(path), ops or ReferenceOps()
        spec = change(read_model_spec(checkpoint))
        groups = cache_groups(spec)
        num_slots = max(len(group.layers) for group in groups)
        layout = KVLayout(200, block_size, num_slots, spec.num_kv_heads, spec.head_dim, kv_dtype)
        return load_decoder(checkpoint, spec, groups, ops, ops.pages(layout)), len(groups)

    return open_


@pytest.fixture(scope="session")
def lone_step() -> LoneStep:
    """Return a function that places positions [first, last) of one sequence."""

    def place(num_groups: int, first: int, last: int, *, block_size: int = 16) -> StepInputs:
        positions = np.arange(first, last, dtype=np.int32)
        width = 198 // num_groups
        tables = [np.arange(1, width + 1, dtype=np.int32) + group * width for group in range(num_groups)]
        slots = [
            table[positions // block_size].astype(np.int64) * block_size + positions % block_size
            for table in tables
        ]
        cu_seqlens = np.array([0, last - first], np.int32)
        return StepInputs(positions, cu_seqlens, tuple(table[None] for table in tables), tuple(slots))

    return place


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory, write_gguf: WriteGguf) -> Path:
    """Return a random model of two layers and 61 tokens."""
    rng = np.random.default_rng(7)
    shapes = {"token_embd.weight": (61, 32), "output_norm.weight": (32,)}
    for layer in ("blk.0.", "blk.1."):
        shapes |= {layer + "attn_norm.weight": (32,), layer + "ffn_norm.weight": (32,)}
        shapes |= {layer + "attn_q.weight": (64, 32), layer + "attn_k.weight": (32, 32)}
        shapes |= {layer + "attn_v.weight": (32, 32), layer + "attn_output.weight": (32, 64)}
        shapes |= {layer + "ffn_gate.weight": (96, 32), layer + "ffn_up.weight": (96, 32)}
        shapes |= {layer + "ffn_down.weight": (32, 96)}
    tensors = {
        name: (rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])).astype(np.float32)
        for name, shape in shapes.items()
    }
    metadata = {
        "block_count": 2,
        "context_length": 512,
        "embedding_length": 32,
        "feed_forward_length": 96,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "attention.key_length": 16,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    return write_gguf(tmp_path_factory.mktemp("tiny") / "llama.gguf", "llama", metadata, tensors)
