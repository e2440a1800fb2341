"""Adapters are read as PEFT saves them; what would change the computation is refused by name."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.adapter_folder import read_adapter
from ratoon.errors import (
    AdapterBudgetError,
    CheckpointError,
    CorruptCheckpointError,
    MissingCheckpointError,
    UnsupportedModelError,
)

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((4, 32), np.float32), RNG.standard_normal((64, 4), np.float32)
PAIRS = {"model.layers.0.self_attn.q_proj": (A, B), "model.layers.11.mlp.down_proj": (B.T.copy(), A.T.copy())}
WriteAdapter = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, write_adapter: WriteAdapter) -> WriteAdapter:
    """Return a writer of a small adapter with settings of its own, or with other weights."""

    def write(name: str = "adapter", pairs: Any = PAIRS, **settings: object) -> Path:
        return write_adapter(tmp_path / name, pairs, **settings)

    return write


def digest(path: Path) -> bytes:
    return read_adapter(path).digest


def test_weights_come_by_layer_and_module_as_they_are_stored(write: WriteAdapter) -> None:
    folder = read_adapter(write())
    assert set(folder.pairs) == {(0, "q_proj"), (11, "down_proj")}
    pair = folder.pairs[0, "q_proj"]
    assert (pair.a.shape, pair.b.shape, pair.a.dtype) == ((4, 32), (64, 4), "F32")
    assert bytes(pair.a.data) == A.tobytes()
    assert bytes(pair.b.data) == B.tobytes()


def test_the_scale_is_alpha_over_the_rank_or_over_its_root(write: WriteAdapter) -> None:
    assert read_adapter(write(lora_alpha=6)).scale == 1.5
    assert read_adapter(write(lora_alpha=6, use_rslora=True)).scale == 3.0
    assert read_adapter(write(lora_alpha=2.5)).scale == 0.625


def test_what_has_no_effect_is_not_in_the_digest(write: WriteAdapter) -> None:
    first = digest(write("first"))
    assert first == digest(
        write("second", lora_dropout=0.5, base_model_name_or_path="x", inference_mode=False)
    )
    assert first == digest(write("third", lora_alpha=4, use_rslora=True))  # the same scale
    assert first == digest(write("fourth", target_modules="all-linear"))


def test_weights_and_scale_are_in_the_digest(write: WriteAdapter) -> None:
    other = A.copy()
    other.view(np.uint8)[0, 0] ^= 1
    moved = {"model.layers.1.self_attn.q_proj": (A, B), **dict([list(PAIRS.items())[1]])}
    halves = {name: (a.astype(np.float16), b.astype(np.float16)) for name, (a, b) in PAIRS.items()}
    key = {"model.layers.0.self_attn.k_proj": (A, B), **dict([list(PAIRS.items())[1]])}
    digests = [
        digest(write()),
        digest(write("scale", lora_alpha=9)),
        digest(write("stabilised", use_rslora=True)),
        digest(write("bit", {**PAIRS, "model.layers.0.self_attn.q_proj": (other, B)})),
        digest(write("layer", moved)),
        digest(write("module", key)),
        digest(write("half", halves)),
    ]
    assert len(set(digests)) == len(digests)


def test_what_is_read_stays_when_the_file_changes(write: WriteAdapter) -> None:
    path = write()
    folder = read_adapter(path)
    (path / "adapter_model.safetensors").write_bytes(b"")
    assert bytes(folder.pairs[0, "q_proj"].a.data) == A.tobytes()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"use_dora": True}, r"DoRA \(use_dora"),
        ({"bias": "all"}, "bias"),
        ({"bias": "lora_only"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"layer_replication": [[0, 4], [2, 5]]}, "layer_replication"),
        ({"trainable_token_indices": [7]}, "trainable_token_indices"),
        ({"target_parameters": ["experts"]}, "target_parameters"),
        ({"use_qalora": True}, "QA-LoRA"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens"),
        ({"an_invention_of_tomorrow": 1}, "an_invention_of_tomorrow"),
        ({"init_lora_weights": "pissa"}, "pissa"),
        ({"init_lora_weights": "loftq"}, "loftq"),
        ({"peft_type": "ADALORA"}, "ADALORA"),
        ({"peft_type": "PROMPT_TUNING"}, "PROMPT_TUNING"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(
    write: WriteAdapter, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        read_adapter(write(**settings))


def test_settings_that_ask_for_nothing_are_let_be(write: WriteAdapter) -> None:
    nothing = {"layer_replication": None, "an_invention_of_tomorrow": False, "trainable_token_indices": None}
    read_adapter(
        write(**nothing, init_lora_weights="gaussian", runtime_config={"x": False}, lora_dropout=0.1)
    )


@pytest.mark.parametrize(
    "module",
    [
        "model.embed_tokens",
        "lm_head",
        "model.layers.0.self_attn.qkv_proj",
        "model.layers.0.input_layernorm",
        "model.layers.00.mlp.up_proj",
        "model.layers.-1.mlp.up_proj",
        "model.layers.1234567.mlp.up_proj",
    ],
)
def test_weights_for_other_modules_are_refused_by_name(write: WriteAdapter, module: str) -> None:
    with pytest.raises(UnsupportedModelError, match=module):
        read_adapter(write(pairs={module: (A, B)}))


def test_dora_is_refused_by_its_tensors_too(write: WriteAdapter) -> None:
    path = write()
    file = path / "adapter_model.safetensors"
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector"
    header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    head = json.dumps(header).encode()
    file.write_bytes(len(head).to_bytes(8, "little") + head + data[8 + size :])
    with pytest.raises(UnsupportedModelError, match="lora_magnitude_vector"):
        read_adapter(path)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"r": 5}, "rank is 5"),
        ({"r": 0}, "r is 0"),
        ({"r": True}, "r is True"),
        ({"r": None}, "r is None"),
        ({"lora_alpha": "16"}, "lora_alpha"),
        ({"lora_alpha": float("nan")}, "lora_alpha"),
        ({"use_rslora": "yes"}, "use_rslora"),
        ({"target_modules": ["q_proj"]}, "down_proj, which its target_modules leave out"),
        ({"target_modules": [7]}, "target_modules"),
        ({"r": 10**400}, "rank r is 1000"),
        ({"lora_alpha": 10**400}, "lora_alpha"),
        ({"lora_alpha": -1e308}, "lora_alpha"),
        ({"lora_alpha": float("-inf")}, "lora_alpha"),
    ],
)
def test_what_contradicts_itself_is_refused(
    write: WriteAdapter, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(CorruptCheckpointError, match=reason):
        read_adapter(write(**settings))


def test_target_modules_may_be_longer_names(write: WriteAdapter) -> None:
    read_adapter(write(target_modules=["layers.0.self_attn.q_proj", "mlp.down_proj"]))


def test_an_expression_in_target_modules_is_never_run(write: WriteAdapter) -> None:
    read_adapter(write(target_modules=r".*\.(q|down)_proj"))
    read_adapter(write(target_modules=f"{'(.*)*' * 12}x"))  # would take longer than the universe


def test_what_is_no_regular_file_is_not_opened(write: WriteAdapter) -> None:
    path = write()
    file = path / "adapter_model.safetensors"
    file.unlink()
    os.mkfifo(file)  # whoever opened it would wait for somebody to write
    with pytest.raises(CheckpointError, match="is not a regular file"):
        read_adapter(path)


def test_a_file_larger_than_what_is_allowed_is_not_read(write: WriteAdapter) -> None:
    path = write()
    size = (path / "adapter_model.safetensors").stat().st_size
    read_adapter(path, size)
    with pytest.raises(AdapterBudgetError, match="but adapters have"):
        read_adapter(path, size - 1)
    os.truncate(path / "adapter_config.json", 1 << 42)  # takes no room on the disk
    with pytest.raises(AdapterBudgetError, match="has 4 TiB"):
        read_adapter(path)


def test_long_values_are_cut_in_messages(write: WriteAdapter) -> None:
    with pytest.raises(UnsupportedModelError) as error:
        read_adapter(write(an_invention_of_tomorrow="x" * 10_000))
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        ((A, B[:, :3].copy()), "rank is 4"),
        ((A[0], B), "rank is 4"),
        ((A.reshape(4, 8, 4), B), "rank is 4"),
    ],
)
def test_weights_that_do_not_fit_each_other_are_refused(write: WriteAdapter, pair: Any, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=reason):
        read_adapter(write(pairs={"model.layers.0.self_attn.q_proj": pair}, r=4))


def test_a_half_without_the_other_is_refused(write: WriteAdapter) -> None:
    path = write()
    file = path / "adapter_model.safetensors"
    data = file.read_bytes().replace(b"layers.0.self_attn.q_proj.lora_A", b"layers.0.self_attn.k_proj.lora_A")
    file.write_bytes(data)
    config = json.loads((path / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps(config | {"target_modules": "all-linear"}))
    with pytest.raises(CorruptCheckpointError, match="without its other half"):
        read_adapter(path)


def test_what_is_not_there_is_said(write: WriteAdapter, tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointError, match="no adapter folder"):
        read_adapter(tmp_path / "nowhere")
    path = write()
    (path / "adapter_model.safetensors").rename(path / "adapter_model.bin")
    with pytest.raises(MissingCheckpointError, match="safetensors") as error:
        read_adapter(path)
    assert ".bin" in str(error.value.hint)
    (path / "adapter_config.json").unlink()
    with pytest.raises(MissingCheckpointError, match=r"adapter_config\.json"):
        read_adapter(path)


@pytest.mark.parametrize("text", ["", "[]", "{", '"LORA"', "\udc80"])
def test_a_configuration_that_is_none_is_refused(write: WriteAdapter, text: str) -> None:
    path = write()
    (path / "adapter_config.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CorruptCheckpointError, match="not a JSON object"):
        read_adapter(path)


def test_a_file_that_ends_too_early_is_refused(write: WriteAdapter) -> None:
    path = write()
    file = path / "adapter_model.safetensors"
    data = file.read_bytes()
    for length in (0, 7, 100, len(data) - 1):
        file.write_bytes(data[:length])
        with pytest.raises(CheckpointError):
            read_adapter(path)


def test_a_home_folder_is_found(write: WriteAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_adapter("~/mine").path == tmp_path / "mine"
