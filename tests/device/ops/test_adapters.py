"""Contract of low-rank adapters in a feed-forward block; each implementation, mixed among the rows of a step.

What attention does with them, and all together, is tested on whole models (`model/test_adapter.py`).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.dequantize import tensor_values
from ratoon.device.ops.native import NativeOps, available_variants
from ratoon.device.ops.protocol import (
    Adapter,
    AdapterRows,
    AdapterSpan,
    AdapterWeights,
    FeedForwardWeights,
    Floats,
    LowRank,
    Ops,
)
from ratoon.device.ops.reference import ReferenceOps

HIDDEN, INNER, SCALE = 64, 96, 1.5
RNG = np.random.default_rng(11)
SHAPES = {"gate": (INNER, HIDDEN), "up": (INNER, HIDDEN), "down": (HIDDEN, INNER)}


def make_ops(name: str, num_threads: int = 2) -> Ops:
    return ReferenceOps() if name == "reference" else NativeOps(num_threads, name)


@pytest.fixture(params=["reference", *available_variants()])
def ops(request: pytest.FixtureRequest) -> Ops:
    return make_ops(request.param)


def stored(values: Floats, dtype: str = "F32") -> RawTensor:
    data = quants.quantize(values, gguf.GGMLQuantizationType[dtype])
    return RawTensor("w", values.shape, dtype, memoryview(np.ascontiguousarray(data).tobytes()))


def random(*shape: int, size: float = 1.0) -> Floats:
    return (RNG.standard_normal(shape, dtype=np.float32) * size).astype(np.float32)


def feed_forward(dtype: str, post_norm: bool = False) -> FeedForwardWeights:
    weights = {target: stored(random(*shape, size=0.2), dtype) for target, shape in SHAPES.items()}
    norm = np.ones(HIDDEN, np.float32)
    return FeedForwardWeights(norm, **weights, post_norm=norm if post_norm else None, eps=1e-5,
                              activation="silu", layer=1)  # fmt: skip


def adapter(rank: int, dtype: str = "F32", targets: Sequence[str] = tuple(SHAPES)) -> AdapterWeights:
    pairs = {}
    for target in targets:
        outputs, inputs = SHAPES[target]
        a, b = random(rank, inputs, size=0.3), random(outputs, rank, size=0.3)
        pairs[target] = LowRank(stored(a, dtype), stored(b, dtype))
    return AdapterWeights(({}, pairs), SCALE, 16)


def spread(ops: Ops, adapters: Sequence[Adapter | None]) -> AdapterRows:
    spans, first = [], 0
    for one, group in groupby(adapters):
        end = first + len(list(group))
        if one is not None:
            spans.append(AdapterSpan(first, end, one))
        first = end
    return ops.adapter_rows(len(adapters), spans)


def expected(w: FeedForwardWeights, pairs: Mapping[str, LowRank], x: Floats) -> Any:
    def linear(target: str, tensor: RawTensor, rows: Any) -> Any:
        weight = tensor_values(tensor).astype(np.float64)
        if pair := pairs.get(target):
            a, b = (tensor_values(half).astype(np.float64) for half in (pair.a, pair.b))
            weight = weight + SCALE * b @ a
        return rows @ weight.T

    def norm(rows: Any) -> Any:
        return rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + w.eps)

    h = norm(x.astype(np.float64))
    gate = linear("gate", w.gate, h)
    out = linear("down", w.down, gate / (1 + np.exp(-gate)) * linear("up", w.up, h))
    return x + (out if w.post_norm is None else norm(out))


@pytest.mark.parametrize("post_norm", [False, True])
@pytest.mark.parametrize(("rank", "dtype"), [(1, "F32"), (8, "F16"), (16, "BF16"), (40, "F32")])
def test_an_adapter_is_what_its_merged_weights_are(ops: Ops, rank: int, dtype: str, post_norm: bool) -> None:
    weights, low = feed_forward("F32", post_norm), adapter(rank, dtype)
    x = random(37, HIDDEN)
    found = x.copy()
    ops.feed_forward(weights)(found, spread(ops, [ops.adapter(low)] * 37))
    exact = expected(weights, low.layers[1], x)
    np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())


def test_each_target_counts_by_itself(ops: Ops) -> None:
    weights, x = feed_forward("F32"), random(3, HIDDEN)
    block = ops.feed_forward(weights)
    for target in SHAPES:
        low, found = adapter(4, targets=[target]), x.copy()
        block(found, spread(ops, [ops.adapter(low)] * 3))
        exact = expected(weights, low.layers[1], x)
        np.testing.assert_allclose(found, exact, atol=1e-5 * np.abs(exact).max())


@pytest.mark.parametrize("dtype", ["F32", "Q4_0", "Q8_0"])
def test_a_row_has_the_same_bits_whatever_adapters_run_beside_it(ops: Ops, dtype: str) -> None:
    block = ops.feed_forward(feed_forward(dtype, post_norm=dtype == "Q8_0"))
    kinds = [None, ops.adapter(adapter(8, "F16")), ops.adapter(adapter(33, targets=["up"]))]
    x = random(150, HIDDEN)
    alone = []
    for kind in kinds:
        rows = x.copy()
        block(rows, None if kind is None else spread(ops, [kind] * len(x)))
        alone.append(rows)
    assert not any((a == b).all(axis=1).any() for a, b in ((alone[0], alone[1]), (alone[1], alone[2])))
    for count, run in ((150, 1), (150, 70), (67, 5), (1, 1)):
        chosen = RNG.integers(0, 3, count).repeat(run)[:count]
        mixed = x[:count].copy()
        block(mixed, spread(ops, [kinds[choice] for choice in chosen]))
        for row, choice in enumerate(chosen):
            assert mixed[row].tobytes() == alone[choice][row].tobytes(), f"row {row} of {count}"


@pytest.mark.parametrize("variant", available_variants())
def test_the_number_of_threads_changes_no_bit(variant: str) -> None:
    weights, low, x = feed_forward("Q4_0"), adapter(8), random(90, HIDDEN)
    found = []
    for num_threads in (1, 2, 3):
        ops, rows = make_ops(variant, num_threads), x.copy()
        one = ops.adapter(low)
        ops.feed_forward(weights)(rows, spread(ops, [None if row % 7 == 3 else one for row in range(90)]))
        found.append(rows.tobytes())
    assert found[0] == found[1] == found[2]


def test_other_layers_are_left_alone(ops: Ops) -> None:
    weights, x = feed_forward("F32"), random(2, HIDDEN)
    low = adapter(4)
    elsewhere = AdapterWeights((low.layers[1], {}), SCALE, 16)
    plain, found = x.copy(), x.copy()
    block = ops.feed_forward(weights)
    block(plain)
    block(found, spread(ops, [ops.adapter(elsewhere)] * 2))
    assert plain.tobytes() == found.tobytes()


def test_memory_is_counted_before_it_is_taken() -> None:
    weights = adapter(8, "F16", ["gate"])
    assert ReferenceOps().adapter_bytes(weights) == 4 * 8 * (INNER + HIDDEN)
    assert NativeOps(1).adapter_bytes(weights) == 2 * (16 * HIDDEN + 8 * INNER)  # eight columns filled up
    heads = AdapterWeights(({"q": LowRank(stored(random(4, 32)), stored(random(40, 4)))},), SCALE, 20)
    assert NativeOps(1).adapter_bytes(heads) == 4 * (16 * 32 + 2 * 32 * 4)  # two heads of 20 fill 32 each


@pytest.mark.parametrize(
    ("spans", "reason"),
    [
        ([(0, 0)], "out of order"),
        ([(2, 1)], "out of order"),
        ([(-1, 1)], "out of order"),
        ([(0, 2), (1, 3)], "out of order"),
        ([(0, 4)], "last row"),
    ],
)
def test_spans_that_cannot_be_are_refused(spans: list[tuple[int, int]], reason: str) -> None:
    ops = NativeOps(1)
    one = ops.adapter(adapter(4))
    with pytest.raises(ValueError, match=reason):
        ops.adapter_rows(3, [AdapterSpan(first, end, one) for first, end in spans])


def test_adapters_of_other_rows_or_another_shape_are_refused() -> None:
    ops = NativeOps(1)
    block, x = ops.feed_forward(feed_forward("F32")), random(3, HIDDEN)
    before = x.tobytes()
    with pytest.raises(ValueError, match="as many rows"):
        block(x, spread(ops, [ops.adapter(adapter(4))] * 4))
    pair = LowRank(stored(random(4, HIDDEN)), stored(random(INNER + 32, 4)))
    with pytest.raises(ValueError, match="another shape"):
        block(x, spread(ops, [ops.adapter(AdapterWeights(({}, {"up": pair}), SCALE, 16))] * 3))
    assert x.tobytes() == before
