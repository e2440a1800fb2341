import math

import numpy as np

from ratoon.device.model.rope_tables import rope_tables
from ratoon.spec.model_spec import RopeSpec


def test_pair_i_turns_by_position_over_base_to_the_two_i_over_dim() -> None:
    rope = rope_tables(RopeSpec(base=100.0, dim=8, interleaved=True), 5)
    assert rope.interleaved
    assert rope.cos.shape == rope.sin.shape == (5, 4)
    for pair, slowness in enumerate((1.0, math.sqrt(10), 10.0, 10 * math.sqrt(10))):
        np.testing.assert_allclose(rope.cos[3, pair], math.cos(3 / slowness), rtol=1e-6)
        np.testing.assert_allclose(rope.sin[3, pair], math.sin(3 / slowness), rtol=1e-6)


def test_factors_divide_the_frequencies() -> None:
    plain = rope_tables(RopeSpec(base=100.0, dim=4, interleaved=False), 9)
    slowed = rope_tables(RopeSpec(base=100.0, dim=4, interleaved=False, factors=(1.0, 2.0)), 9)
    np.testing.assert_array_equal(slowed.cos[:, 0], plain.cos[:, 0])
    np.testing.assert_array_equal(slowed.cos[::2, 1], plain.cos[:5, 1])


def test_late_positions_are_as_exact_as_early_ones() -> None:
    rope = rope_tables(RopeSpec(base=10000.0, dim=2, interleaved=False), 100_001)
    assert rope.sin[100_000, 0] == np.float32(math.sin(100_000.0))
