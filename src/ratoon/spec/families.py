"""What distinguishes the families of models, beyond the numbers that stand in their files."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """Switches of `ModelSpec` that a family fixes.

    `is_gemma` stands for norms after each block, tanh-GELU and embeddings scaled by the root of their
    width. `window_period` p: every p-th layer sees everything, the others a window; 0 where the family
    has no such rule. `local_rope_base` turns windowed layers where they have a base of their own.
    `wide_geometry`: hidden size, heads and head size of the one size that scales attention by hidden /
    heads, not by the head size; GGUF files do not say so.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    is_gemma: bool = False
    window_period: int = 0
    local_rope_base: float | None = None
    wide_geometry: tuple[int, int, int] | None = None


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True),
    "gemma2": Family(is_gemma=True, window_period=2, wide_geometry=(4608, 32, 128)),
    "gemma3": Family(
        qk_norm=True,
        is_gemma=True,
        window_period=6,
        local_rope_base=1e4,
        wide_geometry=(5376, 32, 128),
    ),
}
"""By GGUF's name of the architecture."""
