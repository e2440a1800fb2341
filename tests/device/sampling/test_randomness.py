import numpy as np
import pytest

from ratoon.device.sampling.randomness import uniform


def test_numbers_are_fixed_by_seed_and_index() -> None:
    """Pinned: whoever upgrades gets the outputs they had."""
    assert [uniform(0, 0), uniform(0, 1), uniform(7, 1000)] == PINNED


PINNED = [0.011546754286331562, 0.5023796042735054, 0.23190574451996193]


def test_a_seed_is_taken_modulo_two_to_the_64() -> None:
    assert uniform(-1, 5) == uniform(2**64 - 1, 5)


@pytest.mark.parametrize("along", ["index", "seed"])
def test_numbers_are_uniform_along_seeds_and_along_indices(along: str) -> None:
    numbers = [uniform(3, i) if along == "index" else uniform(i, 3) for i in range(4000)]
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert counts.sum() == 4000
    assert ((counts - 200) ** 2 / 200).sum() < 43.8  # chi-squared, 19 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.06
