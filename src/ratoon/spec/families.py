"""What distinguishes the families of models, beyond the numbers that stand in their files."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Family:
    """Switches of `ModelSpec` that a family fixes.

    `is_gemma` stands for norms after each block, tanh-GELU and embeddings scaled by the root of their
    width. `is_permuted`: llama.cpp's converter reorders the rows of q and k, so that turning pairs are
    neighbours. `nope_period` n: every n-th layer has no positional embedding. `window_period` p: every p-th
    layer sees everything, the others a window; 0 where the family has no such rule. `local_rope_base` turns
    windowed layers where they have a base of their own. `wide_geometry`: hidden size, heads and head size of
    the one size that scales attention by hidden / heads, not by the head size; GGUF files do not say so.
    `defaults` are what `transformers` leaves out of the `config.json` that it writes.
    """

    qkv_bias: bool = False
    qk_norm: bool = False
    is_gemma: bool = False
    window_period: int = 0
    local_rope_base: float | None = None
    wide_geometry: tuple[int, int, int] | None = None
    is_permuted: bool = False
    nope_period: int = 0
    defaults: Mapping[str, object] | None = None


FAMILIES: Mapping[str, Family] = {
    "llama": Family(is_permuted=True),
    "qwen2": Family(qkv_bias=True),
    "qwen3": Family(qk_norm=True),
    "gemma2": Family(is_gemma=True, window_period=2, wide_geometry=(4608, 32, 128)),
    "gemma3": Family(
        qk_norm=True,
        is_gemma=True,
        window_period=6,
        local_rope_base=1e4,
        wide_geometry=(5376, 32, 128),
        defaults=MappingProxyType(
            {
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-6,
                "query_pre_attn_scalar": 256,
                "rope_theta": 1e6,
                "tie_word_embeddings": True,
            }
        ),
    ),
    "phi3": Family(),
    "smollm3": Family(is_permuted=True, nope_period=4),
    "granite": Family(is_permuted=True),
}
"""By GGUF's name of the architecture."""
