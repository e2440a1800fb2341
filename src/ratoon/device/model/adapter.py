"""From an adapter's folder to what the ops take: checked against the model, in its order of rows."""

import numpy as np

from ratoon.checkpoint.adapter_folder import AdapterFolder, LowRankPair
from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.dequantize import tensor_bytes, tensor_values
from ratoon.device.ops.protocol import AdapterWeights, LowRank
from ratoon.errors import CorruptCheckpointError
from ratoon.spec.model_spec import ModelSpec

TARGETS = {
    "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out",
    "gate_proj": "gate", "up_proj": "up", "down_proj": "down",
}  # fmt: skip
"""PEFT's names of modules, and ours."""


def adapter_weights(folder: AdapterFolder, spec: ModelSpec) -> AdapterWeights:
    """Return the adapter for this model. Raises `CorruptCheckpointError` where it was made for another."""
    layers: tuple[dict[str, LowRank], ...] = tuple({} for _ in range(spec.num_layers))
    for (layer, module), pair in folder.pairs.items():
        target = TARGETS[module]
        if layer >= spec.num_layers:
            raise CorruptCheckpointError(
                f"The adapter {folder.path} changes layer {layer}, but the model has {spec.num_layers}.",
                hint="It was made for another model.",
            )
        _check(pair, _shape(spec, target), folder)
        # PEFT keeps the rows of q and k as Hugging Face does, some files have pairs side by side.
        is_turned = target in ("q", "k") and spec.layers[layer].rope.interleaved
        b = _interleaved(pair.b, spec.head_dim) if is_turned else pair.b
        layers[layer][target] = LowRank(pair.a, b)
    return AdapterWeights(layers, folder.scale, spec.head_dim)


def _shape(spec: ModelSpec, target: str) -> tuple[int, int]:
    """Return the outputs and inputs of a weight."""
    queries, keys = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    hidden, inner = spec.hidden_size, spec.intermediate_size
    return {
        "q": (queries, hidden), "k": (keys, hidden), "v": (keys, hidden), "out": (hidden, queries),
        "gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner),
    }[target]  # fmt: skip


def _check(pair: LowRankPair, shape: tuple[int, int], folder: AdapterFolder) -> None:
    if (pair.b.shape[0], pair.a.shape[1]) != shape:
        raise CorruptCheckpointError(
            f"The adapter {folder.path} has {pair.a.name} and its other half for a weight of "
            f"{[pair.b.shape[0], pair.a.shape[1]]}, but the model's is {list(shape)}.",
            hint="It was made for another model.",
        )
    for tensor in (pair.a, pair.b):
        if not np.isfinite(tensor_values(tensor)).all():  # it would spoil the steps of others too
            raise CorruptCheckpointError(f"The adapter {folder.path} has NaN or infinity in {tensor.name}.")


def _interleaved(b: RawTensor, head_dim: int) -> RawTensor:
    """Reorder rows within each head: from the first halves of all pairs, then the second, to pair by pair."""
    rows = tensor_bytes(b)
    heads = rows.reshape(-1, 2, head_dim // 2, rows.shape[1]).swapaxes(1, 2)
    return RawTensor(b.name, b.shape, b.dtype, memoryview(heads.tobytes()))
