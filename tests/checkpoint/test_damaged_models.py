"""A thousand damaged model files: each is opened or refused with a sentence, in little memory."""

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.errors import CheckpointError, RatoonError

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]
NUM_FILES = 500
MOST_MEMORY = 1 << 20


@pytest.fixture
def damaged_gguf(write_gguf: WriteGguf) -> tuple[Path, Path]:
    tensors = {f"blk.{i}.weight": np.arange(64, dtype=np.float32) for i in range(4)}
    path = write_gguf(tensors=tensors)
    return path, path


@pytest.fixture
def damaged_safetensors(write_folder: WriteFolder) -> tuple[Path, Path]:
    folder = write_folder(tensors={f"x.{i}": ("F32", (4, 4), bytes(64)) for i in range(4)})
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE"}}))
    return folder, folder / "model.safetensors"


def damage(whole: bytes, rng: random.Random) -> bytes:
    """Truncate, or change some bytes, mostly of the header; lengths and counts become huge now and then."""
    data = bytearray(whole)
    if rng.random() < 0.2:
        return bytes(data[: rng.randrange(len(data))])
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(min(len(data), 400))
        width = rng.choice([1, 1, 2, 4, 8])
        data[at : at + width] = rng.choice([rng.randbytes(width), b"\xff" * width, bytes(width)])
    return bytes(data)


@pytest.mark.parametrize("kind", ["damaged_gguf", "damaged_safetensors"])
def test_a_damaged_file_is_opened_or_refused_and_takes_little_memory(
    kind: str, request: pytest.FixtureRequest
) -> None:
    model, file = request.getfixturevalue(kind)
    whole, rng = file.read_bytes(), random.Random(20)
    errors: list[RatoonError | None] = []
    _ = open_checkpoint(model).digest  # what is imported for it does not count
    tracemalloc.start()
    for _ in range(NUM_FILES):
        file.write_bytes(damage(whole, rng))
        error, peak = read_all(model, len(whole))
        if peak >= MOST_MEMORY:  # what another thread took is not taken again
            error, peak = read_all(model, len(whole))
        errors.append(error)
        assert peak < MOST_MEMORY
    tracemalloc.stop()
    refused = [error for error in errors if error is not None]
    assert len(refused) > NUM_FILES // 3
    assert all(isinstance(error, CheckpointError) and error.message.endswith(".") for error in refused)


def read_all(model: Path, num_bytes: int) -> tuple[RatoonError | None, int]:
    """Read everything of a model: what refused it, and the most memory it took meanwhile."""
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    refused = None
    try:
        checkpoint = open_checkpoint(model)
        for name in checkpoint.tensor_names():
            assert checkpoint.tensor(name).data.nbytes <= num_bytes
        _ = checkpoint.digest, checkpoint.tokenizer_json
    except RatoonError as error:
        refused = error.with_traceback(None)
    return refused, tracemalloc.get_traced_memory()[1] - before
