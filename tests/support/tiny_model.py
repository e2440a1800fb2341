"""A real model that is tiny and random, Gemma 3's kind with windows of 9 tokens, as the server loads it."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models

FOLDER = Path(__file__).parents[1] / "golden/tiny/gemma3"
HIDDEN_SIZE = 32
VOCAB_SIZE = 48


def write_tiny_model(folder: Path, **config: Any) -> Path:
    """Write it with a tokenizer; `config` replaces what stands in its configuration file."""
    shutil.copytree(FOLDER, folder)
    known = json.loads((FOLDER / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(known | config))
    vocabulary = {chr(97 + number): number for number in range(VOCAB_SIZE)}
    whole = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    whole.decoder = decoders.Fuse()
    (folder / "tokenizer.json").write_text(whole.to_str())
    return folder


def write_tiny_adapter(
    folder: Path,
    write_adapter: Callable[..., Path],
    seed: int,
    layers: Sequence[int] = (0, 1, 2),
    **settings: Any,
) -> Path:
    """Write an adapter of the layers' keys, at random."""
    rng = np.random.default_rng(seed)
    pairs = {
        f"model.layers.{layer}.self_attn.k_proj": (
            rng.standard_normal((2, HIDDEN_SIZE), np.float32),
            rng.standard_normal((16, 2), np.float32),
        )
        for layer in layers
    }
    return write_adapter(folder, pairs, **settings)
