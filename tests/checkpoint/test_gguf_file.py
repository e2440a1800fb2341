from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ratoon.checkpoint import gguf_file
from ratoon.checkpoint.gguf_file import GgufFile
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.util.progress import no_progress

WriteGguf = Callable[..., Path]


def open_quietly(path: Path) -> GgufFile:
    return GgufFile(path, no_progress)


def no_reading(*_: object) -> None:
    raise AssertionError("the model was read again")


def test_tensors_are_read_from_the_file_when_they_are_asked_for(write_gguf: WriteGguf) -> None:
    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    checkpoint = open_quietly(write_gguf(tensors={"z.weight": values, "a.weight": np.ones(4, np.float32)}))
    assert checkpoint.tensor_names() == ("z.weight", "a.weight")
    tensor = checkpoint.tensor("z.weight")
    assert (tensor.shape, tensor.dtype) == ((2, 3), "F16")
    assert tensor.data == values.tobytes()
    assert tensor.data.readonly


def test_a_missing_tensor_is_named(write_gguf: WriteGguf) -> None:
    with pytest.raises(CorruptCheckpointError, match=r"no tensor 'nothing.weight'"):
        open_quietly(write_gguf()).tensor("nothing.weight")


def test_metadata_comes_without_the_token_lists(write_gguf: WriteGguf) -> None:
    checkpoint = open_quietly(write_gguf())
    assert checkpoint.architecture == "llama"
    assert checkpoint.metadata["tokenizer.ggml.model"] == "gpt2"
    assert "tokenizer.ggml.tokens" not in checkpoint.metadata


def test_a_second_opening_reads_only_the_sidecar(
    write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf()
    first = open_quietly(path)
    assert first.digest
    monkeypatch.setattr(GgufFile, "_header", no_reading)
    monkeypatch.setattr(gguf_file, "translate_tokenizer", no_reading)
    second = open_quietly(path)
    assert second.metadata == first.metadata
    assert second.digest == first.digest
    assert second.tokenizer_json == first.tokenizer_json
    assert second.tensor("x.weight").data == first.tensor("x.weight").data


def test_opening_reads_no_weights(write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "weights_digest", no_reading)
    checkpoint = open_quietly(write_gguf())
    assert checkpoint.tokenizer_json
    assert checkpoint.tensor("x.weight").shape == (64,)
    assert not list(checkpoint.path.parent.glob("*.ratoon"))


def test_equal_weights_have_equal_digests_whatever_the_metadata(write_gguf: WriteGguf) -> None:
    ones, twos = {"x": np.ones(8, np.float32)}, {"x": np.full(8, 2, np.float32)}
    digests = [
        open_quietly(write_gguf(metadata, tensors, name=f"{number}.gguf")).digest
        for number, (metadata, tensors) in enumerate([({"k": 1}, ones), ({"k": 2}, ones), ({"k": 1}, twos)])
    ]
    assert digests[0] == digests[1] != digests[2]
    assert len(digests[0]) == 32


def test_a_changed_file_is_read_anew(write_gguf: WriteGguf) -> None:
    before = open_quietly(write_gguf(tensors={"x": np.ones(8, np.float32)})).digest
    after = open_quietly(write_gguf(tensors={"x": np.zeros(8, np.float32)})).digest
    assert before != after


def test_a_model_without_a_known_tokenizer_opens_and_says_so_when_asked_for_text(
    write_gguf: WriteGguf,
) -> None:
    path = write_gguf({"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": ["a"]})
    for _ in ("without a sidecar", "with one"):
        checkpoint = open_quietly(path)
        with pytest.raises(UnsupportedModelError, match="'rwkv'"):
            _ = checkpoint.tokenizer_json
        assert checkpoint.digest


def test_progress_ends_with_every_byte_of_the_weights(write_gguf: WriteGguf) -> None:
    calls: list[tuple[str, int, int]] = []
    path = write_gguf(tensors={"x": np.ones(8, np.float32)})
    assert GgufFile(path, lambda *call: calls.append(call)).digest
    assert calls[-1][1:] == (32, 32)


def test_a_real_model_opens(smollm2_path: Path) -> None:
    checkpoint = open_quietly(smollm2_path)
    assert checkpoint.architecture == "llama"
    assert checkpoint.tensor("token_embd.weight").shape == (49152, 576)
    assert {checkpoint.tensor(name).dtype for name in checkpoint.tensor_names()} == {"F32", "Q4_1", "Q8_0"}
