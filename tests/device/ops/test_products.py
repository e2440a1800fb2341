"""Contract of what multiplies: linear, feed-forward, head, embedding; each implementation, each format."""

from collections.abc import Callable

import gguf
import numpy as np
import pytest
from gguf import quants
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.dequantize import FORMATS, tensor_values
from ratoon.device.ops.native import NativeOps, available_variants, emulated_variants
from ratoon.device.ops.protocol import FeedForwardWeights, Floats, LMHeadWeights, Ops
from ratoon.device.ops.reference import ReferenceOps

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def same_numbers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test draw the same numbers, whichever ran before it in this process."""
    monkeypatch.setattr(request.module, "RNG", np.random.default_rng(5))


GROUP = 32
DEPTH = 512
FLOATS = ("F32", "F16", "BF16")
QUANTISED = [dtype for dtype in FORMATS if dtype not in FLOATS]
VARIANTS = [*available_variants(), *emulated_variants()]


def make_ops(name: str, num_threads: int = 2) -> Ops:
    return ReferenceOps() if name == "reference" else NativeOps(num_threads, name)


@pytest.fixture(params=["reference", *VARIANTS])
def ops(request: pytest.FixtureRequest) -> Ops:
    return make_ops(request.param)


@pytest.fixture(params=VARIANTS)
def native(request: pytest.FixtureRequest) -> Ops:
    return make_ops(request.param)


SCALES_AT = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q6_K": [208]}
"""Where a block's float16 scales are, if not at bytes 0 and 2."""


def blocks(dtype: str, bits: NDArray[np.uint8], scales: NDArray[np.float16]) -> NDArray[np.uint8]:
    """Return blocks with given bits everywhere but in their scales."""
    blocks = bits.copy()
    for at in SCALES_AT.get(dtype, [0, 2]):
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks


def stored(dtype: str, rows: int, columns: int) -> RawTensor:
    """Return a random weight; K-quants, which `gguf` cannot write, are random bits under small scales."""
    if dtype.endswith("K"):
        layout = FORMATS[dtype]
        bits = RNG.integers(0, 256, (rows * columns // layout.num_elements, layout.num_bytes), np.uint8)
        data = blocks(dtype, bits, (RNG.random(len(bits)) * 1e-4).astype(np.float16))
    else:
        values = RNG.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(columns))
        data = quants.quantize(values, gguf.GGMLQuantizationType[dtype])
    return RawTensor("w", (rows, columns), dtype, memoryview(np.ascontiguousarray(data).tobytes()))


def rows_of(count: int, columns: int = DEPTH) -> Floats:
    return RNG.standard_normal((count, columns), dtype=np.float32)


def rounding_bound(x: Floats, weight: Floats) -> NDArray[np.float64]:
    """Return how far a product may be off if each group of 32 inputs is rounded to 127ths of its peak."""
    peaks: NDArray[np.float64] = np.abs(x.astype(np.float64)).reshape(len(x), -1, GROUP).max(axis=-1)
    sizes = np.abs(weight.astype(np.float64)).reshape(len(weight), -1, GROUP).sum(axis=-1)
    return np.asarray(peaks / 254 @ sizes.T)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_product_is_as_near_as_the_rounding_of_its_inputs_allows(ops: Ops, dtype: str) -> None:
    tensor, x = stored(dtype, 50, DEPTH), rows_of(19)
    weight = tensor_values(tensor)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    rounds = not (isinstance(ops, ReferenceOps) or dtype in FLOATS)
    bound = 2e-5 * np.abs(exact).max() + (rounding_bound(x, weight) if rounds else 0)
    assert (np.abs(ops.linear([tensor])(x) - exact) <= bound).all()


@pytest.mark.parametrize("dtype", QUANTISED)
def test_a_quantised_product_is_exact_for_inputs_that_survive_rounding(native: Ops, dtype: str) -> None:
    tensor = stored(dtype, 37, DEPTH)
    x = RNG.integers(-127, 128, (9, DEPTH)).astype(np.float32)
    x[:, ::GROUP] = 127  # so that every group's step is 1
    exact = x.astype(np.float64) @ tensor_values(tensor).astype(np.float64).T
    np.testing.assert_allclose(native.linear([tensor])(x), exact, rtol=0, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("dtype", QUANTISED)
def test_the_largest_weights_and_inputs_do_not_overflow(native: Ops, dtype: str, byte: int) -> None:
    bits = np.full((16 * DEPTH // FORMATS[dtype].num_elements, FORMATS[dtype].num_bytes), byte, np.uint8)
    data = blocks(dtype, bits, np.full(len(bits), 0.25, np.float16))
    tensor = RawTensor("w", (16, DEPTH), dtype, memoryview(data.tobytes()))
    x = np.full((3, DEPTH), 127, np.float32)
    x[1] = -127
    x[2, ::2] = -127
    exact = x.astype(np.float64) @ tensor_values(tensor).astype(np.float64).T
    np.testing.assert_allclose(native.linear([tensor])(x), exact, rtol=1e-5, atol=1e-5 * np.abs(exact).max())


def test_weights_side_by_side_may_be_stored_differently(ops: Ops) -> None:
    tensors = [stored("Q5_0", 24, DEPTH), stored("F32", 7, DEPTH), stored("Q8_0", 40, DEPTH)]
    x = rows_of(5)
    together = ops.linear(tensors)(x)
    alone = np.concatenate([ops.linear([tensor])(x) for tensor in tensors], axis=1)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", FORMATS)
def test_an_embedding_gives_the_scaled_bits_of_its_rows(ops: Ops, dtype: str) -> None:
    tensor = stored(dtype, 20, DEPTH)
    ids = np.array([3, 19, 0, 3], np.int32)
    found = ops.embedding(tensor, 1.5)(ids)
    assert found.tobytes() == (tensor_values(tensor)[ids] * np.float32(1.5)).tobytes()
    found += 1  # the decoder works on it in place


def norm_weight(columns: int) -> Floats:
    return RNG.uniform(0.5, 1.5, columns).astype(np.float32)


def _feed_forward(dtype: str, activation: str = "silu", post_norm: bool = False) -> FeedForwardWeights:
    hidden, inner = 256, 768
    return FeedForwardWeights(
        norm=norm_weight(hidden),
        gate=stored(dtype, inner, hidden),
        up=stored(dtype, inner, hidden),
        down=stored(dtype, hidden, inner),
        post_norm=norm_weight(hidden) if post_norm else None,
        eps=1e-5,
        activation=activation,
    )


def _in_place(block: Callable[[Floats], None], x: Floats) -> Floats:
    out = x.copy()
    block(out)
    return out


@pytest.mark.parametrize("post_norm", [False, True])
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_feed_forward_block_agrees_with_the_reference(
    native: Ops, activation: str, post_norm: bool
) -> None:
    weights, x = _feed_forward("F32", activation, post_norm), 3 * rows_of(70, 256)
    x[0] *= 1000  # saturates both activations
    found = _in_place(native.feed_forward(weights), x)
    expected = _in_place(ReferenceOps().feed_forward(weights), x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K", "BF16"])
def test_a_quantised_feed_forward_block_is_near_the_reference(native: Ops, dtype: str) -> None:
    weights, x = _feed_forward(dtype), rows_of(5, 256)
    found = _in_place(native.feed_forward(weights), x) - x
    expected = _in_place(ReferenceOps().feed_forward(weights), x) - x
    assert np.linalg.norm(found - expected) <= 0.02 * np.linalg.norm(expected)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_a_head_is_that_of_the_reference(native: Ops, softcap: float) -> None:
    weights, x = LMHeadWeights(norm_weight(DEPTH), stored("F16", 1003, DEPTH), 1e-5, softcap), rows_of(3)
    expected, _ = ReferenceOps().lm_head(weights)(x)
    np.testing.assert_allclose(native.lm_head(weights)(x)[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
@pytest.mark.parametrize("vocab", [1, 5, 16, 1003, 5000])
@pytest.mark.parametrize("num_rows", [1, 3, 70])
def test_a_head_finds_the_first_of_the_highest_as_numpy_does(
    ops: Ops, num_rows: int, vocab: int, softcap: float
) -> None:
    """With few different weights most maxima come several times; a NaN is higher than anything."""
    rng = np.random.default_rng(vocab)
    out = rng.integers(0, 2, (vocab, DEPTH)).astype(np.float16)
    out[:, 1:] = 0
    x = rng.standard_normal((num_rows, DEPTH), dtype=np.float32)
    for _ in range(2):
        tensor = RawTensor("out", out.shape, "F16", memoryview(out.tobytes()))
        logits, best = ops.lm_head(LMHeadWeights(np.ones(DEPTH, np.float32), tensor, 1e-5, softcap))(x)
        assert best.dtype == np.int32
        assert best.tolist() == logits.argmax(axis=1).tolist()
        out[[vocab // 2, -1], 0] = np.nan
    assert np.isnan(logits[np.arange(num_rows), best]).all()


def test_a_head_without_rows_finds_nothing(ops: Ops) -> None:
    head = ops.lm_head(LMHeadWeights(np.ones(DEPTH, np.float32), stored("F16", 40, DEPTH), 1e-5, 0.0))
    logits, best = head(rows_of(0))
    assert logits.shape == (0, 40)
    assert best.shape == (0,)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_row_has_the_same_bits_alone_and_in_any_company(ops: Ops, dtype: str) -> None:
    linear = ops.linear([stored(dtype, 40, DEPTH)])
    feed_forward = ops.feed_forward(_feed_forward(dtype))
    head = ops.lm_head(LMHeadWeights(np.ones(DEPTH, np.float32), stored(dtype, 40, DEPTH), 1e-5, 30.0))
    x = rows_of(75)
    inner = np.ascontiguousarray(x[:, :256])
    whole = linear(x), _in_place(feed_forward, inner), *head(x)
    for size in (1, 2, 3, 5, 7, 13, 66):
        for first in (0, 9):
            part = slice(first, first + size)
            assert linear(x[part]).tobytes() == whole[0][part].tobytes()
            assert _in_place(feed_forward, inner[part]).tobytes() == whole[1][part].tobytes()
            logits, best = head(x[part])
            assert logits.tobytes() == whole[2][part].tobytes()
            assert best.tobytes() == whole[3][part].tobytes()


@pytest.mark.parametrize("variant", VARIANTS)
def test_bits_do_not_depend_on_the_number_of_threads(variant: str) -> None:
    weights, tensor, x = _feed_forward("Q4_1"), stored("Q8_0", 90, DEPTH), rows_of(130)
    inner = np.ascontiguousarray(x[:, :256])
    found = set()
    for num_threads in (1, 2, 3):
        ops = make_ops(variant, num_threads)
        found.add(ops.linear([tensor])(x).tobytes() + _in_place(ops.feed_forward(weights), inner).tobytes())
    assert len(found) == 1


@pytest.mark.parametrize("dtype", FORMATS)
def test_variants_that_share_their_numerics_share_their_bits(dtype: str) -> None:
    weights, tensor, x = _feed_forward(dtype), stored(dtype, 90, DEPTH), rows_of(21)
    inner = np.ascontiguousarray(x[:, :256])
    found = set()
    for variant in VARIANTS:
        ops = make_ops(variant)
        bits = ops.linear([tensor])(x).tobytes() + _in_place(ops.feed_forward(weights), inner).tobytes()
        found.add((ops.numerics, bits))
    assert len(found) == len({numerics for numerics, _ in found})


def test_a_row_of_zeros_gives_zeros(native: Ops) -> None:
    x = np.zeros((2, DEPTH), np.float32)
    x[1] = 1e-37  # its step would be too small to divide by
    for dtype in FORMATS:
        out = native.linear([stored(dtype, 20, DEPTH)])(x)
        assert not out[0].any()
        assert np.abs(out[1]).max() < 1e-30


@pytest.mark.parametrize("dtype", FORMATS)
def test_an_input_that_is_no_number_is_not_hidden(native: Ops, dtype: str) -> None:
    x = rows_of(3)
    x[1, 100] = np.nan
    x[2, 100] = np.inf
    out = native.linear([stored(dtype, 20, DEPTH)])(x)
    assert np.isfinite(out[0]).all()
    assert np.isnan(out[1]).all()
    assert not np.isfinite(out[2]).any()
