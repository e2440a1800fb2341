import math
from pathlib import Path

import pytest

from ratoon.spec.rope_scaling import config_rope, linear_factors
from ratoon.spec.typed_metadata import Metadata

LLAMA_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def llama3_factors() -> tuple[float, ...]:
    table = Metadata(LLAMA_3_1, Path())
    return config_rope(table, table, 5e5, 128).factors


def test_llama3_keeps_short_waves_slows_long_ones_and_goes_over_smoothly() -> None:
    factors = llama3_factors()
    lengths = [2 * math.pi * 5e5 ** (2 * pair / 128) for pair in range(64)]
    for length, factor in zip(lengths, factors, strict=True):
        if length < 8192 / 4:
            assert factor == 1.0
        elif length > 8192:
            assert factor == 8.0
        else:
            assert 1.0 < factor < 8.0
    assert list(factors) == sorted(factors)


def test_llama3_factors_are_those_in_converted_files() -> None:
    # The published definition, written differently: an interpolation of frequencies.
    for pair, factor in enumerate(llama3_factors()):
        frequency = 5e5 ** (-2 * pair / 128)
        smooth = (8192 * frequency / (2 * math.pi) - 1.0) / (4.0 - 1.0)
        smooth = min(max(smooth, 0.0), 1.0)
        expected = (1 - smooth) * frequency / 8.0 + smooth * frequency
        assert frequency / factor == pytest.approx(expected, rel=1e-12)


def test_a_factor_of_one_is_no_factor() -> None:
    assert linear_factors(8, 1.0) == ()
    assert linear_factors(8, 2.0) == (2.0, 2.0, 2.0, 2.0)
