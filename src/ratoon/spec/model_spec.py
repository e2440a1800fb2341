"""`ModelSpec`: the geometry and the switches of a decoder, without its weights.

One description serves sizing, `ratoon inspect`, the fingerprint and the decoder itself. It is read from
a checkpoint's metadata; a model that needs something not described here is refused by name when it is
read.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding of one layer.

    `dim` leading elements of each head turn; element pairs are (2i, 2i + 1) if `interleaved`, else (i,
    i + dim/2). The angle of pair i at position p is p * base ** (-2i / dim) / factors[i] (all factors 1
    where empty).
    """

    base: float
    dim: int
    interleaved: bool
    factors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What may differ from layer to layer."""

    window: int | None
    rope: RopeSpec


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only transformer of the Llama kind.

    Each layer is x += [post_norm] attention(norm(x)); x += [post_norm] feed_forward(norm(x)) with RMS
    norms. Soft caps are off at 0. `attention_scale` multiplies q·k; `embedding_scale` the embedding
    rows.
    """

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    norm_eps: float
    layers: tuple[LayerSpec, ...]
    attention_scale: float
    activation: Literal["silu", "gelu_tanh"] = "silu"
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    tied_embeddings: bool = False
    embedding_scale: float = 1.0
    attention_softcap: float = 0.0
    final_softcap: float = 0.0

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)
