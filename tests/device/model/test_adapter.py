"""Adapters in whole models: checked against the model, in its order of rows, mixed with others."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.adapter_folder import read_adapter
from ratoon.checkpoint.formats import open_checkpoint
from ratoon.device.model.adapter import adapter_weights
from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.native import NativeOps, available_variants
from ratoon.device.ops.protocol import Adapter, AdapterWeights, Floats, Ops, StepInputs
from ratoon.device.ops.reference import ReferenceOps
from ratoon.errors import CorruptCheckpointError
from ratoon.spec.model_reader import read_model_spec

SHAPES = {
    "self_attn.q_proj": (64, 32),
    "self_attn.k_proj": (32, 32),
    "self_attn.v_proj": (32, 32),
    "self_attn.o_proj": (32, 64),
    "mlp.gate_proj": (96, 32),
    "mlp.up_proj": (96, 32),
    "mlp.down_proj": (32, 96),
}
"""Those of `tiny_llama`."""

TOKENS = np.random.default_rng(4).integers(0, 61, 90).astype(np.int32)
OpenDecoder = Callable[..., tuple[Decoder, int]]
Load = Callable[..., AdapterWeights]


def pairs(seed: int, rank: int = 4) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        f"model.layers.{layer}.{module}": (
            rng.standard_normal((rank, inputs), np.float32) / np.float32(np.sqrt(inputs)),
            rng.standard_normal((outputs, rank), np.float32) / 4,
        )
        for layer in range(2)
        for module, (outputs, inputs) in SHAPES.items()
    }


@pytest.fixture
def load(tiny_llama: Path, write_adapter: Callable[..., Path], tmp_path: Path) -> Load:
    """Return a function that reads an adapter of these weights for the model."""
    spec = read_model_spec(open_checkpoint(tiny_llama))

    def load(weights: dict[str, Any], **settings: object) -> AdapterWeights:
        return adapter_weights(read_adapter(write_adapter(tmp_path / "adapter", weights, **settings)), spec)

    return load


def full(value: float, *shape: int) -> Floats:
    return np.full(shape, value, np.float32)


@pytest.mark.parametrize(
    ("module", "pair", "reason"),
    [
        ("model.layers.2.mlp.up_proj", (full(1, 4, 32), full(1, 96, 4)), "layer 2, but the model has 2"),
        ("model.layers.1.mlp.up_proj", (full(1, 4, 96), full(1, 96, 4)), r"\[96, 96\], .* is \[96, 32\]"),
        ("model.layers.1.mlp.up_proj", (full(np.inf, 4, 32), full(1, 96, 4)), "NaN or infinity"),
        ("model.layers.1.mlp.up_proj", (full(1, 4, 32), full(np.nan, 96, 4)), "NaN or infinity"),
    ],
)
def test_an_adapter_for_another_model_is_refused(load: Load, module: str, pair: Any, reason: str) -> None:
    with pytest.raises(CorruptCheckpointError, match=reason):
        load(pairs(1) | {module: pair})


def batch(sequences: list[tuple[int, int, Adapter | None]]) -> tuple[Any, StepInputs]:
    """Lay out sequences (first position, end, adapter), each with ten blocks of its own."""
    lengths = [end - first for first, end, _ in sequences]
    positions = np.concatenate([np.arange(first, end, dtype=np.int32) for first, end, _ in sequences])
    tables = np.arange(1, 1 + 10 * len(sequences), dtype=np.int32).reshape(-1, 10)
    each = np.arange(len(sequences)).repeat(lengths)
    slots = tables[each, positions // 16].astype(np.int64) * 16 + positions % 16
    cu_seqlens = np.array([0, *np.cumsum(lengths)], np.int32)
    adapters = tuple(adapter for _, _, adapter in sequences)
    return TOKENS[positions], StepInputs(positions, cu_seqlens, (tables,), (slots,), adapters)


@pytest.mark.parametrize("kind", ["reference", *available_variants()])
def test_a_sequence_has_the_same_bits_alone_in_chunks_and_among_others(
    kind: str, tiny_llama: Path, open_decoder: OpenDecoder, load: Load
) -> None:
    ops: Ops = ReferenceOps() if kind == "reference" else NativeOps(2, kind)
    decoder, _ = open_decoder(tiny_llama, ops=ops, kv_dtype="int16")
    adapters = [None, ops.adapter(load(pairs(1))), ops.adapter(load(pairs(2, rank=19), use_rslora=True))]

    def last_rows(*steps: list[tuple[int, int, Adapter | None]]) -> list[Floats]:
        for sequences in steps:
            tokens, inputs = batch(sequences)
            rows = decoder(tokens, inputs, inputs.cu_seqlens[1:].astype(np.intp) - 1)
        return list(decoder.logits(rows)[0])

    alone = [last_rows([(0, 90, adapter)])[0].tobytes() for adapter in adapters]
    assert len(set(alone)) == 3
    order = [1, 0, 2, 2, 0, 1, 1]
    together = last_rows([(0, 90, adapters[i]) for i in order])
    assert [row.tobytes() for row in together] == [alone[i] for i in order]
    chunked = last_rows(
        [(0, 41, adapters[i]) for i in order],
        [(41, 89, adapters[i]) for i in order],
        [(89, 90, adapters[i]) for i in order],
    )
    assert [row.tobytes() for row in chunked] == [alone[i] for i in order]


def test_a_row_that_is_read_twice_or_not_at_all_goes_through_its_own_adapter(
    tiny_llama: Path, open_decoder: OpenDecoder, load: Load
) -> None:
    ops = NativeOps(1)
    decoder, _ = open_decoder(tiny_llama, ops=ops)
    tokens, inputs = batch([(0, 5, None), (0, 7, ops.adapter(load(pairs(1))))])
    every = decoder(tokens, inputs, np.arange(12))
    rows = np.array([11, 4, 4, 5, 11])
    assert decoder(tokens, inputs, rows).tobytes() == every[rows].tobytes()
    assert decoder(tokens, inputs, np.array([], np.intp)).shape == (0, 32)


def test_q_and_k_take_the_models_order_of_rows(
    tiny_llama: Path, load: Load, write_adapter: Callable[..., Path], tmp_path: Path
) -> None:
    weights = pairs(1)
    interleaved = load(weights).layers[0]
    spec = read_model_spec(open_checkpoint(tiny_llama))
    halves = tuple(replace(layer, rope=replace(layer.rope, interleaved=False)) for layer in spec.layers)
    folder = read_adapter(write_adapter(tmp_path / "adapter", weights))
    as_stored = adapter_weights(folder, replace(spec, layers=halves)).layers[0]
    for target in as_stored:
        rows, stored = (bytes(layer[target].b.data) for layer in (interleaved, as_stored))
        assert (rows == stored) == (target not in ("q", "k"))
        if target in ("q", "k"):  # row 2i + j of a head was row 8j + i
            b = np.frombuffer(rows, np.float32).reshape(-1, 8, 2, 4)
            assert b.swapaxes(1, 2).tobytes() == stored
