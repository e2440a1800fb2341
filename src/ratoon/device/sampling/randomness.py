"""Random numbers that need no state: each is a function of a seed, an index and a token."""

import math

import numpy as np
from numpy.typing import NDArray

_SEED_MASK = 2**64 - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def token_bits(seed: int, index: int, tokens: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return 64 random bits for each token at place `index` of `seed`.

    Seed and index choose where a SplitMix64 sequence begins (Philox: Salmon et al., SC 2011), the token is a
    number of that sequence (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    """
    z = tokens.astype(np.uint64)
    z *= _GOLDEN
    z += np.uint64(np.random.Philox(key=seed & _SEED_MASK, counter=index).random_raw())
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def gumbel(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the standard Gumbel numbers that bits stand for; more bits, as a number, are a larger one."""
    fractions = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52
    numbers: NDArray[np.float64] = -np.log(-np.log(fractions))
    return numbers


def bits_for(least: float) -> np.uint64:
    """Return bits below which no Gumbel number reaches `least`."""
    fraction = math.exp(-math.exp(-least)) * (1 - 1e-9)  # a little less, because numbers are rounded
    return np.uint64(int(fraction * 2.0**64))
