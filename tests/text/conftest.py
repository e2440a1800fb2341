"""Tokenizers of both spellings, small enough to read."""

from pathlib import Path

import pytest

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.checkpoint.gguf_tokenizer import translate_tokenizer
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    """Return the tokenizer of the real model."""
    return load_tokenizer(open_checkpoint(smollm2_path))


@pytest.fixture(scope="session")
def byte_level() -> Tokenizer:
    """Return a byte-level vocabulary of single bytes, a few merges, and `<s>`, `</s>`, `<|x|>` to control."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = [chr(byte) for byte in visible] + [chr(0x100 + place) for place in range(256 - len(visible))]
    merges = ["a b", "Ġ a", "Ġa b", "Ã ¼"]
    merged = [merge.replace(" ", "") for merge in merges]
    control = ["<s>", "</s>", "<|x|>"]
    tokens = [*control, "<tag>", *alphabet, *merged]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [USER_DEFINED] + [NORMAL] * (len(tokens) - 4),
        "tokenizer.ggml.merges": merges,
    }
    return Tokenizer(translate_tokenizer(metadata, "file"), bos="<s>", ends=["</s>"])


@pytest.fixture(scope="session")
def sentencepiece() -> Tokenizer:
    """Return a SentencePiece vocabulary that puts a space in front and falls back to bytes."""
    pieces = ["\u2581", "a", "b", "ü", "ab", "\u2581a", "\u2581ab", "\u2581\u2581"]
    data = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *data, *pieces]
    metadata: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces),
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(place) for place in range(len(pieces))],
    }
    return Tokenizer(translate_tokenizer(metadata, "file"), bos=1, ends=[2])
