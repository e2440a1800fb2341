from typing import Any

import numpy as np
import pytest

from ratoon.device.ops.protocol import Rope
from ratoon.device.ops.reference_functions import (
    TILE,
    Product,
    gelu_tanh,
    into_tiles,
    rms_norm,
    rotate,
    silu,
    softcap,
    tile_width,
)

RNG = np.random.default_rng(3)
SHAPES = [(64, 64), (576, 1536), (1536, 576), (100, 37), (33, 1), (1, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_the_matrix_product(shape: tuple[int, int]) -> None:
    weight = RNG.standard_normal((shape[1], shape[0]), dtype=np.float32)
    x = RNG.standard_normal((21, shape[0]), dtype=np.float32)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(Product(weight)(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_of_a_product_has_the_same_bits_wherever_it_stands(shape: tuple[int, int]) -> None:
    product = Product(RNG.standard_normal((shape[1], shape[0]), dtype=np.float32))
    x = RNG.standard_normal((2 * TILE + 3, shape[0]), dtype=np.float32)
    together = product(x)
    for first, last in ((0, 1), (1, 2), (5, 6), (3, 20), (TILE - 1, TILE + 1), (2 * TILE, 2 * TILE + 3)):
        assert product(x[first:last]).tobytes() == together[first:last].tobytes()


@pytest.mark.parametrize("shape", SHAPES)
def test_this_blas_treats_the_columns_of_a_tile_alike(shape: tuple[int, int]) -> None:
    """Where this fails the reference is still exact, but a tile's height slower."""
    assert tile_width(RNG.standard_normal((shape[1], shape[0]), dtype=np.float32)) == TILE


def test_where_columns_come_out_unlike_they_are_multiplied_one_at_a_time() -> None:
    class Unlike(np.ndarray[Any, np.dtype[np.float32]]):
        def __matmul__(self, other: Any) -> Any:
            out = np.asarray(self) @ other
            out[..., -1] = np.nextafter(out[..., -1], np.float32(np.inf))
            return out

    matrix = RNG.standard_normal((5, 4), dtype=np.float32)
    assert tile_width(matrix.view(Unlike)) == 1


def test_tiles_hold_rows_as_columns_and_zeros_after_them() -> None:
    tiles = into_tiles(np.arange(6, dtype=np.float32).reshape(3, 2), 2)
    np.testing.assert_array_equal(tiles, [[[0, 2], [1, 3]], [[4, 0], [5, 0]]])


def test_no_rows_give_no_rows() -> None:
    assert Product(np.ones((3, 4), np.float32))(np.zeros((0, 4), np.float32)).shape == (0, 3)


def test_a_norm_divides_by_the_root_of_the_mean_square() -> None:
    x = np.array([[3.0, 4.0, 0.0, 0.0]], np.float32)
    expected = [[2.4, 1.6, 0, 0]]  # root of 25 / 4 is 2.5
    np.testing.assert_allclose(rms_norm(x, np.array([2, 1, 1, 1], np.float32), 0.0), expected, rtol=1e-6)


def test_rows_of_norm_and_activations_have_the_same_bits_alone_and_together() -> None:
    x = RNG.standard_normal((23, 577), dtype=np.float32) * 4
    weight = RNG.standard_normal(577, dtype=np.float32)
    functions = (lambda rows: rms_norm(rows, weight, 1e-5), silu, gelu_tanh, lambda rows: softcap(rows, 3.0))
    for function in functions:
        together = function(x)
        for i in range(len(x)):
            assert function(x[i : i + 1]).tobytes() == together[i : i + 1].tobytes()


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_turns_pairs_by_their_angle_and_leaves_the_rest(interleaved: bool) -> None:
    angles = np.array([[0.0, 0.0], [0.5, -2.0]], np.float32)
    rope = Rope(np.cos(angles), np.sin(angles), interleaved)
    x = RNG.standard_normal((2, 3, 6), dtype=np.float32)
    turned = rotate(x, np.array([0, 1], np.int32), rope)
    np.testing.assert_array_equal(turned[0], x[0])
    np.testing.assert_array_equal(turned[1, :, 4:], x[1, :, 4:])
    for pair, angle in enumerate(angles[1]):
        first, second = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 2)
        before = x[1, :, first] + 1j * x[1, :, second]
        after = turned[1, :, first] + 1j * turned[1, :, second]
        np.testing.assert_allclose(after, before * np.exp(1j * angle), rtol=1e-5)


def test_activations_have_known_values_and_stand_extremes() -> None:
    x = np.array([-1e4, -1.0, 0.0, 1.0, 1e4], np.float32)
    np.testing.assert_allclose(silu(x), [0, -0.26894142, 0, 0.7310586, 1e4], atol=1e-6)
    np.testing.assert_allclose(gelu_tanh(x), [0, -0.15880801, 0, 0.84119199, 1e4], atol=1e-6)


def test_a_soft_cap_bounds_and_zero_turns_it_off() -> None:
    x = np.array([-100.0, 0.01, 100.0], np.float32)
    np.testing.assert_allclose(softcap(x, 2.0), [-2, 0.01, 2], rtol=1e-4)
    assert softcap(x, 0.0) is x
