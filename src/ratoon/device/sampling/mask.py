"""Masks: which tokens the form of an answer allows next, and logits without the others."""

import numpy as np
from numpy.typing import NDArray

from ratoon.device.ops.protocol import Floats

Allowed = NDArray[np.bool_]


def allowed_tokens(bits: bytes, vocab_size: int) -> Allowed:
    """Return whether each token is allowed, from a bit for each, the lowest of a byte first."""
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=vocab_size, bitorder="little").view(np.bool_)


def masked(logits: Floats, allowed: Allowed) -> Floats:
    """Return logits [vocab] in which every token that is not allowed has minus infinity."""
    return np.where(allowed, logits, np.float32(-np.inf))
