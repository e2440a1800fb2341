"""Checkpoints that are nothing but metadata and a few tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from ratoon.checkpoint.tensor import RawTensor

VOCAB_SIZE, HIDDEN_SIZE = 11, 16


@dataclass
class FakeCheckpoint:
    """Implements `Checkpoint` as far as geometry needs it."""

    format: Literal["gguf", "safetensors"]
    architecture: str
    metadata: Mapping[str, object]
    tensors: dict[str, RawTensor] = field(default_factory=dict)
    path: Path = Path("model")
    tokenizer_json: str = ""
    digest: bytes = b""

    def tensor_names(self) -> tuple[str, ...]:
        return tuple(self.tensors)

    def tensor(self, name: str) -> RawTensor:
        return self.tensors[name]


MakeCheckpoint = Callable[..., FakeCheckpoint]


def tensors_named(*names: str) -> dict[str, RawTensor]:
    empty = memoryview(b"")
    return {name: RawTensor(name, (VOCAB_SIZE, HIDDEN_SIZE), "F32", empty) for name in names}


@pytest.fixture
def gguf_checkpoint() -> MakeCheckpoint:
    """Return a maker of GGUF checkpoints; a key changed to None is left out."""

    def make(
        architecture: str = "llama",
        num_layers: int = 2,
        *,
        extra_tensors: tuple[str, ...] = (),
        **changes: object,
    ) -> FakeCheckpoint:
        keys: dict[str, object] = {
            "block_count": num_layers,
            "context_length": 128,
            "embedding_length": HIDDEN_SIZE,
            "feed_forward_length": 24,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "rope.freq_base": 5e4,
        }
        keys |= {name.replace("__", "."): value for name, value in changes.items()}
        metadata = {f"{architecture}.{name}": value for name, value in keys.items() if value is not None}
        norms = [f"blk.{layer}.attn_norm.weight" for layer in range(num_layers)]
        return FakeCheckpoint(
            "gguf", architecture, metadata, tensors_named("token_embd.weight", *norms, *extra_tensors)
        )

    return make


@pytest.fixture
def config_checkpoint() -> MakeCheckpoint:
    """Return a maker of safetensors checkpoints; a key changed to None is null."""

    def make(
        architecture: str = "llama",
        num_layers: int = 2,
        *,
        extra_tensors: tuple[str, ...] = (),
        **changes: object,
    ) -> FakeCheckpoint:
        config: dict[str, object] = {
            "num_hidden_layers": num_layers,
            "max_position_embeddings": 128,
            "hidden_size": HIDDEN_SIZE,
            "intermediate_size": 24,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "rms_norm_eps": 1e-5,
            "rope_theta": 5e4,
            "hidden_act": "gelu_pytorch_tanh" if architecture.startswith("gemma") else "silu",
        }
        norms = [f"model.layers.{layer}.input_layernorm.weight" for layer in range(num_layers)]
        return FakeCheckpoint(
            "safetensors",
            architecture,
            config | changes,
            tensors_named("model.embed_tokens.weight", *norms, *extra_tensors),
        )

    return make
