"""The reference attention against a naive one in float64, and the row rule in it."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.protocol import AttentionWeights, Floats, KVLayout, Rope, StepInputs
from ratoon.device.ops.reference import ReferenceOps
from ratoon.device.ops.reference_attention import SPAN, ReferencePages

RNG = np.random.default_rng(11)
HIDDEN, HEADS, KV_HEADS, DIM, BLOCK = 24, 4, 2, 8, 5
LENGTH = 2 * SPAN + 40


def _tensor(*shape: int) -> RawTensor:
    values = RNG.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(shape[-1]))
    return RawTensor("w", shape, "F32", memoryview(values.tobytes()))


def _values(tensor: RawTensor) -> Floats:
    return np.frombuffer(tensor.data, np.float32).reshape(tensor.shape)


ANGLES = np.outer(np.arange(LENGTH), [1.0, 0.5, 0.1, 0.01])
PLAIN = AttentionWeights(
    norm=RNG.standard_normal(HIDDEN, dtype=np.float32),
    qkv=(_tensor(HEADS * DIM, HIDDEN), _tensor(KV_HEADS * DIM, HIDDEN), _tensor(KV_HEADS * DIM, HIDDEN)),
    qkv_bias=None,
    q_norm=None,
    k_norm=None,
    out=_tensor(HIDDEN, HEADS * DIM),
    post_norm=None,
    eps=1e-5,
    num_heads=HEADS,
    num_kv_heads=KV_HEADS,
    head_dim=DIM,
    scale=DIM**-0.5,
    softcap=0.0,
    window=None,
    rope=Rope(np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32), False),
    group=0,
    slot=1,
)
VARIANTS = {
    "plain": PLAIN,
    "window": replace(PLAIN, window=300),
    "narrow window": replace(PLAIN, window=3),
    "everything": replace(
        PLAIN,
        qkv_bias=RNG.standard_normal((HEADS + 2 * KV_HEADS) * DIM, dtype=np.float32),
        q_norm=RNG.standard_normal(DIM, dtype=np.float32),
        k_norm=RNG.standard_normal(DIM, dtype=np.float32),
        post_norm=RNG.standard_normal(HIDDEN, dtype=np.float32),
        softcap=1.5,
        rope=replace(PLAIN.rope, interleaved=True),
    ),
}
X = RNG.standard_normal((LENGTH, HIDDEN), dtype=np.float32)


def _naive(w: AttentionWeights, x: Floats) -> Any:
    """Float64, one query and one head at a time, with the whole row of scores."""

    def norm(v: Any, weight: Any) -> Any:
        return v if weight is None else v / np.sqrt((v * v).mean(-1, keepdims=True) + w.eps) * weight

    def turn(v: Any, angles: Any) -> Any:
        even, odd = (v[0::2], v[1::2]) if w.rope.interleaved else np.split(v, 2)
        z = (even + 1j * odd) * np.exp(1j * angles)
        return (
            np.stack([z.real, z.imag], 1).ravel() if w.rope.interleaved else np.concatenate([z.real, z.imag])
        )

    bias = 0 if w.qkv_bias is None else w.qkv_bias
    rows = norm(x.astype(np.float64), w.norm) @ np.concatenate([_values(t) for t in w.qkv]).T + bias
    rows = rows.reshape(len(x), -1, DIM)
    q = norm(rows[:, :HEADS], w.q_norm)
    k = norm(rows[:, HEADS:-KV_HEADS], w.k_norm)
    v = rows[:, -KV_HEADS:]
    mixed = np.zeros((len(x), HEADS * DIM))
    for head in range(HEADS):
        kv_head = head // (HEADS // KV_HEADS)
        keys = np.array([turn(k[i, kv_head], ANGLES[i]) for i in range(len(x))])
        for i in range(len(x)):
            first = 0 if w.window is None else max(0, i + 1 - w.window)
            scores = keys[first : i + 1] @ turn(q[i, head], ANGLES[i]) * w.scale
            if w.softcap:
                scores = w.softcap * np.tanh(scores / w.softcap)
            weights = np.exp(scores - scores.max())
            mixed[i, head * DIM : (head + 1) * DIM] = weights @ v[first : i + 1, kv_head] / weights.sum()
    return x + norm(mixed @ _values(w.out).T, w.post_norm)


class Run:
    """One sequence, or several equal ones, run through a block chunk by chunk."""

    def __init__(self, weights: AttentionWeights, kv_dtype: str = "f32") -> None:
        self.ops = ReferenceOps()
        width = -(-LENGTH // BLOCK)
        self.pages = self.ops.pages(KVLayout(1 + 2 * width, BLOCK, 2, KV_HEADS, DIM, kv_dtype))
        self.block = self.ops.attention(weights, self.pages)
        self.tables = 1 + np.random.default_rng(0).permutation(2 * width).astype(np.int32).reshape(2, width)

    def chunk(self, *spans: tuple[int, int, int], write: bool = True) -> list[Floats]:
        """Run positions [first, last) of a sequence for each (sequence, first, last), in one step."""
        positions = np.concatenate([np.arange(first, last, dtype=np.int32) for _, first, last in spans])
        lengths = [last - first for _, first, last in spans]
        cu_seqlens = np.cumsum([0, *lengths]).astype(np.int32)
        tables = self.tables[[sequence for sequence, _, _ in spans]]
        owners = np.repeat(np.arange(len(spans)), lengths)
        slots = tables[owners, positions // BLOCK].astype(np.int64) * BLOCK + positions % BLOCK
        if not write:
            slots[:] = -1
        rows = X[positions].copy()
        self.block(rows, self.ops.begin(StepInputs(positions, cu_seqlens, (tables,), (slots,))))
        return np.split(rows, cu_seqlens[1:-1])


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_over_pages_is_attention(variant: str) -> None:
    found = Run(VARIANTS[variant]).chunk((0, 0, LENGTH))[0]
    np.testing.assert_allclose(found, _naive(VARIANTS[variant], X), rtol=1e-4, atol=1e-4)


def test_integers_cost_little() -> None:
    found = Run(PLAIN, "int16").chunk((0, 0, LENGTH))[0]
    difference = np.abs(found - _naive(PLAIN, X)).max()
    assert 1e-5 < difference < 5e-4


@pytest.mark.parametrize("kv_dtype", ["int16", "f32"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_bits_depend_neither_on_chunks_nor_on_company(variant: str, kv_dtype: str) -> None:
    whole = Run(VARIANTS[variant], kv_dtype).chunk((0, 0, LENGTH))[0]
    run = Run(VARIANTS[variant], kv_dtype)
    cuts = [0, 1, 2, 30, SPAN - 1, SPAN, SPAN + 1, 2 * SPAN, LENGTH]
    for first, last in pairwise(cuts):
        other, ours = run.chunk((1, 0, 7), (0, first, last))
        assert ours.tobytes() == whole[first:last].tobytes()
        assert other.tobytes() == whole[:7].tobytes()


def test_a_row_that_writes_nothing_reads_what_is_there() -> None:
    run = Run(PLAIN)
    whole = run.chunk((0, 0, LENGTH))[0]
    before = run.pages.pages.tobytes()
    again = run.chunk((0, LENGTH - 1, LENGTH), write=False)[0]
    assert again.tobytes() == whole[-1:].tobytes()
    assert run.pages.pages.tobytes() == before


def test_a_block_is_one_page_over_all_slots() -> None:
    run = Run(PLAIN)
    first = run.chunk((0, 0, LENGTH))[0]
    for ours, theirs in zip(*run.tables, strict=True):  # move the sequence to the other one's blocks
        run.pages.pages[theirs] = run.pages.pages[ours]
        run.pages.pages[ours] = 255
    assert run.chunk((1, LENGTH - 1, LENGTH), write=False)[0].tobytes() == first[-1:].tobytes()


def test_a_page_holds_its_slots_apart() -> None:
    pages = ReferencePages(KVLayout(3, BLOCK, 2, KV_HEADS, DIM, "int16"))
    assert pages.pages.shape == (3, 2 * 2 * KV_HEADS * BLOCK * (2 * DIM + 4))
    for stored in pages.slot(1):
        stored["elements"][2], stored["scale"][2] = 0x0101, np.frombuffer(b"\1\1\1\1", np.float32)[0]
    page = pages.pages[2]
    assert page[: len(page) // 2].max() == 0
    assert page[len(page) // 2 :].min() == 1
    assert not pages.pages[:2].any()
