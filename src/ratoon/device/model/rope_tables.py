"""`rope_tables`: the cosines and sines of a rotary embedding, computed once in float64."""

import numpy as np

from ratoon.device.ops.protocol import Rope
from ratoon.spec.model_spec import RopeSpec


def rope_tables(spec: RopeSpec, num_positions: int) -> Rope:
    """Return tables for positions 0 to `num_positions` - 1."""
    spec = spec.for_length(num_positions)
    frequencies = spec.base ** (np.arange(0, spec.dim, 2, dtype=np.float64) / -max(spec.dim, 1))
    if spec.factors:
        frequencies /= np.array(spec.factors, np.float64)
    angles = np.outer(np.arange(num_positions, dtype=np.float64), frequencies)
    cos, sin = (turn(angles) * spec.scale for turn in (np.cos, np.sin))
    return Rope(cos.astype(np.float32), sin.astype(np.float32), spec.interleaved)
