"""Low-rank adapters for the native ops: packed into panels as the weights are, in their own storage."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops import _native
from ratoon.device.ops.protocol import ADAPTER_TARGETS, AdapterRows, AdapterSpan, AdapterWeights

PANEL = 16
"""Columns that are packed together; the last panel of a matrix, or of a head, is filled up with zeros."""

PIECE = 64
"""Bytes that a packed matrix begins at a multiple of."""


class NativeAdapter:
    """An adapter in memory of its own."""

    def __init__(self, weights: AdapterWeights) -> None:
        self.packed = _native.Adapter(len(weights.layers), weights.scale)
        for layer, pairs in enumerate(weights.layers):
            for target, pair in pairs.items():
                (rank, depth), (columns, _) = pair.a.shape, pair.b.shape
                self.packed.add(
                    layer, ADAPTER_TARGETS.index(target), _bytes(pair.a), pair.a.dtype, _bytes(pair.b),
                    pair.b.dtype, rank, depth, columns, _unit(weights, target, columns),
                )  # fmt: skip


class NativeAdapterRows:
    """The adapters of a step's rows."""

    def __init__(self, num_rows: int, spans: Sequence[AdapterSpan]) -> None:
        packed = []
        for span in spans:
            assert isinstance(span.adapter, NativeAdapter), "an adapter of another implementation"
            packed.append((span.first, span.end, span.adapter.packed))
        self.packed = _native.AdapterRows(num_rows, packed)


def packed_rows(adapters: AdapterRows | None) -> _native.AdapterRows | None:
    """Return what the modules take."""
    if adapters is None:
        return None
    assert isinstance(adapters, NativeAdapterRows), "adapters of another implementation"
    return adapters.packed


def packed_bytes(weights: AdapterWeights) -> int:
    """Return how much memory the adapter will take."""
    return sum(
        _matrix_bytes(pair.a, pair.a.shape[0])
        + _matrix_bytes(pair.b, _unit(weights, target, pair.b.shape[0]))
        for pairs in weights.layers
        for target, pair in pairs.items()
    )


def _unit(weights: AdapterWeights, target: str, columns: int) -> int:
    """Return after how many columns panels start afresh, as they do in the weight itself."""
    return weights.head_dim if target in "qkv" else columns


def _matrix_bytes(tensor: RawTensor, unit: int) -> int:
    rows, columns = tensor.shape
    num_panels = rows // unit * -(-unit // PANEL)
    num_bytes = num_panels * PANEL * columns * (4 if tensor.dtype == "F32" else 2)
    return -(-num_bytes // PIECE) * PIECE


def _bytes(tensor: RawTensor) -> NDArray[np.uint8]:
    return np.frombuffer(tensor.data, np.uint8)
