"""Dividing a model's layers into cache groups."""

from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.model_spec import ModelSpec


def cache_groups(spec: ModelSpec) -> tuple[CacheGroupSpec, ...]:
    """Return the groups, those that see everything first.

    Layers with the same window form a kind. All groups draw pages of one size from one pool, so all
    have as many layers as the smallest kind. A larger kind becomes several groups; where its layers do
    not divide evenly, the last group leaves a part of each of its pages unused. Gemma 3 270M, with 3
    full and 15 sliding layers, becomes 1 + 5 groups of 3 layers.
    """
    kinds: dict[int | None, list[int]] = {}
    for number, layer in enumerate(spec.layers):
        kinds.setdefault(layer.window, []).append(number)
    size = min(map(len, kinds.values()))
    full_first = sorted(kinds.items(), key=lambda kind: kind[0] or 0)
    return tuple(
        CacheGroupSpec(window, tuple(layers[start : start + size]))
        for window, layers in full_first
        for start in range(0, len(layers), size)
    )
