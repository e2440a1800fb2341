"""`ModelSpec`: the geometry and the switches of a decoder, without its weights.

One description serves sizing, `ratoon inspect`, the fingerprint and the decoder itself. It is read from
a checkpoint's metadata; a model that needs something not described here is refused by name when it is
read.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding of one layer.

    `dim` leading elements of each head turn; element pairs are (2i, 2i + 1) if `interleaved`, else (i,
    i + dim/2). The angle of pair i at position p is p * base ** (-2i / dim) / factors[i] (all factors 1
    where empty). A layer without positional embedding has a `dim` of 0. Turned elements are multiplied by
    `scale`.

    In sequences longer than `original_context`, `long_factors` stand for `factors`, and the base grows by
    `dynamic_factor`, where there are such: see `for_length`.
    """

    base: float
    dim: int
    interleaved: bool
    factors: tuple[float, ...] = ()
    scale: float = 1.0
    original_context: int = 0
    long_factors: tuple[float, ...] = ()
    dynamic_factor: float = 0.0

    def changed(self, **changes: Any) -> "RopeSpec":
        """Return it with other values in some places."""
        return replace(self, **changes)

    def for_length(self, max_length: int) -> "RopeSpec":
        """Return what holds for all sequences of a model that runs with this context."""
        base, factors = self.base, self.factors
        if max_length > self.original_context:
            factors = self.long_factors or factors
            if self.dynamic_factor:
                longer = self.dynamic_factor * max_length / self.original_context - (self.dynamic_factor - 1)
                base *= longer ** (self.dim / (self.dim - 2))
        return RopeSpec(base, self.dim, self.interleaved, factors, self.scale)


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What may differ from layer to layer."""

    window: int | None
    rope: RopeSpec


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A decoder-only transformer of the Llama kind.

    Each layer is x += [post_norm] attention(norm(x)); x += [post_norm] feed_forward(norm(x)) with RMS
    norms. Soft caps are off at 0. `attention_scale` multiplies q·k, `embedding_scale` the embedding
    rows, `logits_scale` the logits.
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
    logits_scale: float = 1.0
    attention_softcap: float = 0.0
    final_softcap: float = 0.0

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layers)

    def for_length(self, max_length: int) -> "ModelSpec":
        """Return the model as it runs with this context: some RoPE scalings depend on it."""
        layers = (replace(layer, rope=layer.rope.for_length(max_length)) for layer in self.layers)
        return replace(self, layers=tuple(layers))
