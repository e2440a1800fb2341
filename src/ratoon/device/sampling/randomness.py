"""Random numbers that need no state: the n-th number of a seed is a function of both."""

import numpy as np

_SEED_MASK = 2**64 - 1


def uniform(seed: int, index: int) -> float:
    """Return number `index` of `seed`, uniform in [0, 1), 53 bits fine (Philox: Salmon et al., SC 2011)."""
    bits = int(np.random.Philox(key=seed & _SEED_MASK, counter=index).random_raw())
    return (bits >> 11) * 2.0**-53
