from typing import Any

import gguf
import numpy as np
import pytest
from gguf import quants
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.protocol import FeedForwardWeights, LMHeadWeights
from ratoon.device.ops.reference import ReferenceOps

RNG = np.random.default_rng(17)
OPS = ReferenceOps()


def _random(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape, dtype=np.float32)


def _raw(values: NDArray[np.float32], dtype: str = "F32") -> RawTensor:
    data = values if dtype == "F32" else quants.quantize(values, gguf.GGMLQuantizationType[dtype])
    return RawTensor("w", values.shape, dtype, memoryview(data.tobytes()))


def _norm(x: NDArray[np.float32], weight: NDArray[np.float32]) -> Any:
    exact = x.astype(np.float64)
    return exact / np.sqrt((exact**2).mean(axis=1, keepdims=True)) * weight


def test_formats_that_can_be_read_are_supported_and_others_are_not() -> None:
    assert OPS.supports("Q4_1")
    assert not OPS.supports("IQ2_XXS")


def test_a_linear_has_the_rows_of_all_its_tensors_in_order() -> None:
    first, second, x = _random(5, 32), _random(3, 32), _random(4, 32)
    found = OPS.linear([_raw(first), _raw(second)])(x)
    np.testing.assert_allclose(found, np.hstack([x @ first.T, x @ second.T]), atol=1e-5)


@pytest.mark.parametrize("dtype", ["F32", "Q8_0", "Q4_1"])
def test_an_embedding_expands_and_scales_the_rows_it_is_asked_for(dtype: str) -> None:
    table = _raw(_random(11, 64), dtype)
    data = np.frombuffer(table.data, np.uint8).reshape(11, -1)
    rows = data.view(np.float32) if dtype == "F32" else data
    values = quants.dequantize(rows, gguf.GGMLQuantizationType[dtype])
    embedding = OPS.embedding(table, 3.0)
    found = embedding(np.array([7, 0, 7], np.int32))
    np.testing.assert_array_equal(found, values[[7, 0, 7]] * np.float32(3))
    found[:] = 0  # the decoder works in place
    assert embedding(np.array([7], np.int32)).any()


@pytest.mark.parametrize("post_norm", [None, _random(24)])
def test_a_feed_forward_adds_its_output_in_place(post_norm: NDArray[np.float32] | None) -> None:
    gate, up, down, norm, x = _random(40, 24), _random(40, 24), _random(24, 40), _random(24), _random(6, 24)
    weights = FeedForwardWeights(norm, _raw(gate), _raw(up), _raw(down), post_norm, 0.0, "silu")
    h = _norm(x, norm)
    opened = h @ gate.T / (1 + np.exp(-(h @ gate.T))) * (h @ up.T)
    out = opened @ down.T
    expected = x + (out if post_norm is None else _norm(out.astype(np.float32), post_norm))
    OPS.feed_forward(weights)(x)
    np.testing.assert_allclose(x, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("softcap", [0.0, 2.0])
def test_a_head_norms_projects_and_caps(softcap: float) -> None:
    norm, out, x = _random(24), _random(50, 24), _random(3, 24)
    exact = _norm(x, norm) @ out.T
    expected = softcap * np.tanh(exact / softcap) if softcap else exact
    found, best = OPS.lm_head(LMHeadWeights(norm, _raw(out), 0.0, softcap))(x)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert best.tolist() == found.argmax(axis=1).tolist()
