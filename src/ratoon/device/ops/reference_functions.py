"""The functions of rows that the reference modules are made of, in NumPy float32.

Each obeys the row rule. For matrix products that needs care: a BLAS library may round a row differently
according to where in the matrix it stands. Rows are therefore multiplied as columns, `TILE` at a time, so
that each is a lane of the library's vector kernels; that the lanes are alike is tried before it is trusted.
"""

from typing import cast

import numpy as np

from ratoon.device.ops.protocol import Floats, Ints, Rope

TILE = 16
"""Columns per matrix product: as many floats as the widest vector register holds."""


class Product:
    """Rows [n, in] times weight [out, in] transposed, in tiles of equal width, the last padded with 0."""

    def __init__(self, weight: Floats) -> None:
        self._weight = weight
        self._tile = tile_width(weight)

    def __call__(self, x: Floats) -> Floats:
        """Return float32 [n, out]."""
        columns = self._weight @ into_tiles(x, self._tile)
        rows = np.ascontiguousarray(columns.swapaxes(-1, -2))  # always: a sum's order follows the layout
        return rows.reshape(-1, len(self._weight))[: len(x)]


def into_tiles(x: Floats, width: int) -> Floats:
    """Lay rows [n, size] out as columns [tiles, size, width], padded with zeros."""
    tiles = np.pad(x, ((0, -len(x) % width), (0, 0))).reshape(-1, width, x.shape[1])
    return np.ascontiguousarray(tiles.swapaxes(-1, -2))


def tile_width(matrix: Floats) -> int:
    """Return how many columns may be multiplied by `matrix` at once: `TILE`, or 1 if they come out unlike."""
    row = np.random.default_rng(0).standard_normal((1, matrix.shape[1]), dtype=np.float32)
    columns = matrix @ into_tiles(row.repeat(TILE, axis=0), TILE)[0]
    return TILE if (columns == columns[:, :1]).all() else 1


def rms_norm(x: Floats, weight: Floats, eps: float) -> Floats:
    """Root-mean-square norm over the last axis (arXiv:1910.07467)."""
    mean = np.square(x).sum(axis=-1, keepdims=True) / np.float32(x.shape[-1])
    return cast(Floats, x / np.sqrt(mean + np.float32(eps)) * weight)


def rotate(x: Floats, positions: Ints, rope: Rope) -> Floats:
    """Rotary embedding (arXiv:2104.09864) of heads [n, heads, dim]; elements beyond the tables' dim stay."""
    cos, sin = rope.cos[positions, None], rope.sin[positions, None]
    half = cos.shape[-1]
    if rope.interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., second] * cos + x[..., first] * sin
    return out


def silu(x: Floats) -> Floats:
    """Sigmoid linear unit, x / (1 + exp(-x)); the exponential may saturate to infinity, which gives 0."""
    with np.errstate(over="ignore"):
        return cast(Floats, x / (1 + np.exp(-x)))


def gelu_tanh(x: Floats) -> Floats:
    """Gaussian error linear unit in its tanh form (arXiv:1606.08415)."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    return cast(Floats, np.float32(0.5) * x * (1 + np.tanh(inner)))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def softcap(x: Floats, cap: float) -> Floats:
    """Squash to (-cap, cap); 0 leaves `x` as it is."""
    return cast(Floats, np.float32(cap) * np.tanh(x / np.float32(cap))) if cap else x
