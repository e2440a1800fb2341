import math

import numpy as np
import pytest
from numpy.typing import NDArray

from ratoon.device.sampling.randomness import bits_for, gumbel, token_bits


def _bits(seed: int, index: int, *tokens: int) -> NDArray[np.uint64]:
    return token_bits(seed, index, np.array(tokens))


def test_bits_are_fixed_by_seed_index_and_token() -> None:
    """Pinned: whoever upgrades gets the outputs they had."""
    assert [*_bits(0, 0, 0, 1), *_bits(0, 1, 0), *_bits(7, 1000, 49151)] == PINNED


PINNED = [16876850162663781085, 11387746673758701166, 3092336954517810666, 5880621711310470951]


def test_a_seed_is_taken_modulo_two_to_the_64() -> None:
    assert _bits(-1, 5, 3) == _bits(2**64 - 1, 5, 3)


@pytest.mark.parametrize("along", ["index", "seed", "token"])
def test_bits_are_uniform_along_seeds_indices_and_tokens(along: str) -> None:
    if along == "token":
        bits = token_bits(3, 4, np.arange(4000))
    else:
        bits = np.concatenate([_bits(3, i, 9) if along == "index" else _bits(i, 3, 9) for i in range(4000)])
    for part in (bits, bits << np.uint64(20)):
        fractions = part * 2.0**-64
        counts, _ = np.histogram(fractions, bins=20, range=(0, 1))
        assert counts.sum() == 4000
        assert ((counts - 200) ** 2 / 200).sum() < 43.8  # chi-squared, 19 degrees of freedom, p = 0.001
        assert abs(np.corrcoef(fractions[:-1], fractions[1:])[0, 1]) < 0.06


def test_gumbel_numbers_have_their_distribution() -> None:
    numbers = gumbel(token_bits(1, 2, np.arange(10_000)))
    for x in (-1, 0, 1, 3):
        expected = math.exp(-math.exp(-x))
        assert abs((numbers < x).mean() - expected) < 3.3 * math.sqrt(expected * (1 - expected) / 10_000)


def test_all_bits_stand_for_finite_numbers() -> None:
    extremes = gumbel(np.array([0, 2**64 - 1], np.uint64))
    assert np.isfinite(extremes).all()
    assert extremes[0] < -3.5
    assert extremes[1] > 36


@pytest.mark.parametrize("least", [-2.0, 0.0, 5.0, 20.0, 36.0, 50.0])
def test_no_number_below_the_bits_reaches_what_they_are_for(least: float) -> None:
    bits = bits_for(least)
    assert (gumbel(np.array([bits - np.uint64(1)])) < least).all()
    assert (gumbel(np.array([min(int(bits) + 2**36, 2**64 - 1)], np.uint64)) > min(least, 20.0)).all()
