"""Stretching a rotary embedding over longer contexts than the model was first trained on.

The kinds are those of `transformers` (modeling_rope_utils.py): linear, dynamic (NTK), llama3, yarn
(arXiv:2309.00071) and longrope (arXiv:2402.13753). Two of them depend on how long a sequence is; here on how
long one may get, so that a key is the same for every request and can be cached: `RopeSpec.for_length`.
"""

import math

from ratoon.spec.model_spec import RopeSpec
from ratoon.spec.typed_metadata import Metadata


def linear_factors(dim: int, factor: float) -> tuple[float, ...]:
    """Return factors that slow all frequencies alike; none where the factor is 1."""
    return () if factor == 1.0 else (factor,) * (dim // 2)


def config_rope(table: Metadata, config: Metadata, base: float, dim: int) -> RopeSpec:
    """Return the embedding that a `rope_scaling` or `rope_parameters` table of `config.json` describes."""
    kind = table.get("rope_type") or table.get("type") or "default"
    rope = RopeSpec(base, dim, interleaved=False)
    if kind == "linear":
        rope = rope.changed(factors=linear_factors(dim, table.positive("factor")))
    elif kind == "llama3":
        rope = rope.changed(factors=_llama3_factors(table, base, dim))
    elif kind == "dynamic":
        original = _original_context(table, config)
        rope = rope.changed(dynamic_factor=table.positive("factor"), original_context=original)
    elif kind == "yarn":
        rope = _yarn(table, config, rope)
    elif kind in ("longrope", "su"):
        rope = _longrope(table, config, rope)
    elif kind != "default":
        config.unsupported(f"RoPE scaling of the kind {kind!r}")
    return rope


def _yarn(table: Metadata, config: Metadata, rope: RopeSpec) -> RopeSpec:
    original = _original_context(table, config)
    factor = table.positive("factor", config.size("max_position_embeddings") / original)
    scale = table.number("attention_factor", 0.0) or _yarn_scale(table, factor)
    return rope.changed(factors=yarn_factors(table, rope.base, rope.dim, factor, original), scale=scale)


def yarn_factors(
    table: Metadata,
    base: float,
    dim: int,
    factor: float,
    original_context: int,
    keys: tuple[str, str] = ("beta_fast", "beta_slow"),
) -> tuple[float, ...]:
    """Return YaRN's factors: 1 for pairs that turn often in the original context, `factor` for slow ones.

    `keys` name in `table` how many turns are often, and how many are few.
    """

    def pair_that_turns(times: float) -> float:
        return dim * math.log(original_context / (times * 2 * math.pi)) / (2 * math.log(base))

    low, high = (
        pair_that_turns(table.positive(key, default)) for key, default in zip(keys, (32, 1), strict=True)
    )
    if table.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low or 0.001
    factors = []
    for pair in range(dim // 2):
        slowed = min(1.0, max(0.0, (pair - low) / width))
        factors.append(1 / (slowed / factor + (1 - slowed)))
    return tuple(factors)


def yarn_scale(factor: float, weight: float = 1.0) -> float:
    """Return by how much YaRN makes queries and keys longer."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1


def _yarn_scale(table: Metadata, factor: float) -> float:
    weights = table.number("mscale", 0.0), table.number("mscale_all_dim", 0.0)
    if all(weights):
        return yarn_scale(factor, weights[0]) / yarn_scale(factor, weights[1])
    return yarn_scale(factor)


def _original_context(table: Metadata, config: Metadata) -> int:
    """Return the context of the first training, which stands in either of two tables."""
    place = table if table.get("original_max_position_embeddings") is not None else config
    return place.size("original_max_position_embeddings", config.size("max_position_embeddings"))


def _longrope(table: Metadata, config: Metadata, rope: RopeSpec) -> RopeSpec:
    original = _original_context(table, config)
    stretched = table.positive("factor", config.size("max_position_embeddings") / original)
    scale = table.number("attention_factor", 0.0) or longrope_scale(stretched, original)
    short, long = (table.numbers(f"{kind}_factor", rope.dim // 2) for kind in ("short", "long"))
    return rope.changed(factors=short, long_factors=long, original_context=original, scale=scale)


def longrope_scale(factor: float, original_context: int) -> float:
    """Return by how much LongRoPE makes queries and keys longer."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_context))


def _llama3_factors(table: Metadata, base: float, dim: int) -> tuple[float, ...]:
    """Return Llama 3.1's factors: `factor` for long waves, 1 for short ones, a ramp between them.

    A wave's position on the ramp is how often it turns within the original context.
    """
    factor = table.positive("factor")
    low, high = table.number("low_freq_factor"), table.number("high_freq_factor")
    context = table.number("original_max_position_embeddings")
    if high <= low:
        table.corrupt("the factors of its RoPE scaling are out of order")
    factors = []
    for pair in range(dim // 2):
        turns = context * base ** (-2 * pair / dim) / (2 * math.pi)
        unslowed = min(1.0, max(0.0, (turns - low) / (high - low)))
        factors.append(1 / (unslowed + (1 - unslowed) / factor))
    return tuple(factors)
