"""The functions of rows that the reference blocks are made of, in NumPy float32.

Each obeys the row rule. For matrix products that needs care: a BLAS library may round a row differently
according to where in the matrix it stands, so products run in tiles of a height at which it does not.
"""

from typing import cast

import numpy as np

from ratoon.device.ops.protocol import Floats, Ints, Rope

TILE = 8
"""Rows per matrix product. OpenBLAS treats eight rows alike; more it may not."""


class Product:
    """Rows [n, in] times weight [out, in] transposed, in tiles of equal height, the last padded with zeros."""

    def __init__(self, weight: Floats) -> None:
        self._weight = weight.T
        self._tile = tile_height(self._weight)

    def __call__(self, x: Floats) -> Floats:
        """Return float32 [n, out]."""
        num_rows, tile = len(x), self._tile
        x = np.pad(x, ((0, -num_rows % tile), (0, 0)))
        out = np.empty((len(x), self._weight.shape[1]), np.float32)
        for start in range(0, num_rows, tile):
            np.matmul(x[start : start + tile], self._weight, out=out[start : start + tile])
        return out[:num_rows]


def tile_height(matrix: Floats) -> int:
    """Return how many rows may be multiplied by `matrix` [in, out] at once: `TILE`, or 1.

    One, where BLAS rounds equal rows of a tile unequally.
    """
    row = np.random.default_rng(0).standard_normal(matrix.shape[0], dtype=np.float32)
    out = np.tile(row, (TILE, 1)) @ matrix
    return TILE if (out == out[0]).all() else 1


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
