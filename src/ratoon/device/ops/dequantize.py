"""Expands the storage formats of GGUF to float32, as ggml defines them.

A format cuts a row into blocks of equal size; each block carries its own scales. The formulas are those of
the row functions in ggml-quants.c; `d` and `m` are float16 scales, `q` integers of a few bits.
This file knows bytes, not what a tensor is for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.protocol import Floats

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Format:
    """One block is `num_bytes` long; `expand` turns bytes [n, num_bytes] into float32 [n, num_elements]."""

    num_elements: int
    num_bytes: int
    expand: Callable[[Bytes], Floats]


def dequantize(data: Bytes, dtype: str) -> Floats:
    """Expand rows of bytes [..., row_bytes] of a format in `FORMATS` to float32 [..., row_elements]."""
    layout = FORMATS[dtype]
    blocks = np.ascontiguousarray(data).reshape(-1, layout.num_bytes)
    return layout.expand(blocks).reshape(*data.shape[:-1], -1)


def tensor_bytes(tensor: RawTensor) -> Bytes:
    """View a tensor's bytes as [..., row_bytes], without a copy."""
    return np.frombuffer(tensor.data, np.uint8).reshape(*tensor.shape[:-1], -1)


def tensor_values(tensor: RawTensor) -> Floats:
    """Expand a whole tensor to a new float32 array of its shape."""
    return dequantize(tensor_bytes(tensor), tensor.dtype).reshape(tensor.shape)


def _f32(blocks: Bytes) -> Floats:
    return blocks.view(np.float32).copy()


def _f16(blocks: Bytes) -> Floats:
    return blocks.view(np.float16).astype(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _scale(blocks: Bytes, at: int) -> Floats:
    """Read the float16 at byte `at` of each block: [n, 1]."""
    return _f16(blocks[:, at : at + 2].copy())


def _nibbles(packed: Bytes) -> Bytes:
    """[n, b] to [n, 2b]: the low halves of all bytes, then the high halves."""
    return np.concatenate([packed & 0xF, packed >> 4], axis=-1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """Four bytes hold one bit for each of 32 elements; returned as 0 or 16: [n, 32]."""
    return np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)


def _q8_0(blocks: Bytes) -> Floats:
    return _scale(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return _scale(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    return _scale(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _scale(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    q = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return _scale(blocks, 0) * (q.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    q = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return _scale(blocks, 0) * q.astype(np.float32) + _scale(blocks, 2)


def _k_scales(packed: Bytes) -> tuple[Floats, Floats]:
    """Unpack the eight 6-bit scales and minimums of Q4_K and Q5_K from 12 bytes: each [n, 8, 1]."""
    first, second, rest = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (rest & 0xF) | (first >> 6 << 4)], axis=-1)
    minimums = np.concatenate([second & 63, (rest >> 4) | (second >> 6 << 4)], axis=-1)
    return scales.astype(np.float32)[:, :, None], minimums.astype(np.float32)[:, :, None]


def _k_values(blocks: Bytes, q: Bytes) -> Floats:
    """Scale the integers [n, 256] of Q4_K and Q5_K: eight groups of 32 with a scale and a minimum each."""
    scales, minimums = _k_scales(blocks[:, 4:16])
    d, m = _scale(blocks, 0)[:, :, None], _scale(blocks, 2)[:, :, None]
    return (d * scales) * q.reshape(-1, 8, 32).astype(np.float32) - m * minimums


def _q4_k(blocks: Bytes) -> Floats:
    return _k_values(blocks, _nibbles(blocks[:, 16:].reshape(-1, 4, 32)))


def _q5_k(blocks: Bytes) -> Floats:
    high = blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    low = _nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    return _k_values(blocks, low | ((high & np.uint8(1)) << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    q = (low | ((high & np.uint8(3)) << np.uint8(4))).astype(np.float32) - 32
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (_scale(blocks, 208) * scales)[:, :, None] * q.reshape(-1, 16, 16)


FORMATS = {
    "F32": Format(1, 4, _f32),
    "F16": Format(1, 2, _f16),
    "BF16": Format(1, 2, _bf16),
    "Q8_0": Format(32, 34, _q8_0),
    "Q4_0": Format(32, 18, _q4_0),
    "Q4_1": Format(32, 20, _q4_1),
    "Q5_0": Format(32, 22, _q5_0),
    "Q5_1": Format(32, 24, _q5_1),
    "Q4_K": Format(256, 144, _q4_k),
    "Q5_K": Format(256, 176, _q5_k),
    "Q6_K": Format(256, 210, _q6_k),
}
"""By GGUF name. Every format Ratoon can read at all is here."""
