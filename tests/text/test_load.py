from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from ratoon.checkpoint.tensor import RawTensor
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer


@dataclass
class FakeCheckpoint:
    format: Literal["gguf", "safetensors"]
    metadata: Mapping[str, object]
    tokenizer_json: str
    architecture: str = "llama"
    path: Path = Path("model")
    digest: bytes = b""

    def tensor_names(self) -> tuple[str, ...]:
        return ()

    def tensor(self, name: str) -> RawTensor:
        raise AssertionError(name)


@pytest.mark.parametrize(
    ("metadata", "bos", "ends"),
    [
        ({}, None, (1,)),
        ({"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 2}, 0, (2, 1)),
        ({"tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.eot_token_id": 2}, None, (1, 2)),
        ({"tokenizer.ggml.eos_token_id": 10**6, "tokenizer.ggml.eom_token_id": 2}, None, (2, 1)),
    ],
)
def test_a_gguf_names_its_tokens_by_id_and_well_known_ends_are_added(
    byte_level: Tokenizer, metadata: dict[str, object], bos: int | None, ends: tuple[int, ...]
) -> None:
    tokenizer = load_tokenizer(FakeCheckpoint("gguf", metadata, byte_level._whole.to_str()))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (bos, ends)


@pytest.mark.parametrize(
    ("metadata", "bos", "ends"),
    [
        ({"eos_token_id": 2}, None, (2, 1)),
        ({"generation_config.json": {"eos_token_id": [2, 0]}, "eos_token_id": 1}, None, (2, 0, 1)),
        (
            {
                "tokenizer_config.json": {"bos_token": "<s>", "eos_token": {"content": "<|x|>"}},
                "eos_token_id": [1],
            },
            0,
            (2, 1),
        ),
        ({"tokenizer_config.json": None, "generation_config.json": 3, "eos_token_id": None}, None, (1,)),
    ],
)
def test_a_folder_names_them_in_several_files_the_tokenizers_own_first(
    byte_level: Tokenizer, metadata: dict[str, object], bos: int | None, ends: tuple[int, ...]
) -> None:
    tokenizer = load_tokenizer(FakeCheckpoint("safetensors", metadata, byte_level._whole.to_str()))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (bos, ends)
