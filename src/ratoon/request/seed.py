"""Seeds: 64-bit numbers that fix every random choice of a request."""

import secrets

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw_seed() -> int:
    """Return a fresh seed for a request that named none."""
    return secrets.randbits(64)


def child_seed(seed: int, child: int) -> int:
    """Return the seed of answer `child` of `n`: its own for each child, the given one for child 0.

    Step and output function are those of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
    generators, 2014); both are bijective, so no two further children share a seed.
    """
    if child == 0:
        return seed & _MASK
    z = (seed + child * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)
