"""Stretching a rotary embedding over longer contexts than the model was first trained on."""

import math

from ratoon.spec.model_spec import RopeSpec
from ratoon.spec.typed_metadata import Metadata


def linear_factors(dim: int, factor: float) -> tuple[float, ...]:
    """Return factors that slow all frequencies alike; none where the factor is 1."""
    return () if factor == 1.0 else (factor,) * (dim // 2)


def config_rope(settings: Metadata, base: float, dim: int) -> RopeSpec:
    """Return the embedding that a `rope_scaling` or `rope_parameters` table of `config.json` describes."""
    kind = settings.get("rope_type") or settings.get("type") or "default"
    factors: tuple[float, ...] = ()
    if kind == "linear":
        factors = linear_factors(dim, settings.positive("factor"))
    elif kind == "llama3":
        factors = _llama3_factors(settings, base, dim)
    elif kind != "default":
        settings.unsupported(f"RoPE scaling of the kind {kind!r}")
    return RopeSpec(base, dim, interleaved=False, factors=factors)


def _llama3_factors(settings: Metadata, base: float, dim: int) -> tuple[float, ...]:
    """Return Llama 3.1's factors: `factor` for long waves, 1 for short ones, a ramp between them.

    A wave's place on the ramp is how often it turns within the original context.
    """
    factor = settings.positive("factor")
    low, high = settings.number("low_freq_factor"), settings.number("high_freq_factor")
    context = settings.number("original_max_position_embeddings")
    if high <= low:
        settings.corrupt("the factors of its RoPE scaling are out of order")
    factors = []
    for pair in range(dim // 2):
        turns = context * base ** (-2 * pair / dim) / (2 * math.pi)
        unslowed = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / (unslowed + (1 - unslowed) / factor))
    return tuple(factors)
