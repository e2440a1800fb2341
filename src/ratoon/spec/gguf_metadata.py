"""`ModelSpec` from the metadata of a GGUF file.

Keys are those of gguf-py (constants.py). What the format leaves to the reader (Gemma's window pattern
and local RoPE base) is what llama.cpp takes.
"""

import math

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.errors import CorruptCheckpointError
from ratoon.spec.families import Family
from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec
from ratoon.spec.rope_scaling import linear_factors, yarn_factors, yarn_scale
from ratoon.spec.typed_metadata import Metadata


def spec_of_gguf(checkpoint: Checkpoint, family: Family) -> ModelSpec:
    """Read the spec. Raises `CorruptCheckpointError` or `UnsupportedModelError`."""
    architecture = checkpoint.architecture
    keys = Metadata(checkpoint.metadata, checkpoint.path, f"{architecture}.")
    tensors = set(checkpoint.tensor_names())
    if keys.integer("expert_count", 0):
        keys.unsupported("a mixture of experts")
    hidden_size, num_heads = keys.size("embedding_length"), keys.size("attention.head_count")
    num_layers = keys.size("block_count")
    head_dim = keys.size("attention.key_length", hidden_size // num_heads)
    if keys.integer("attention.value_length", head_dim) != head_dim:
        keys.unsupported("values of another width than its keys")
    last, beyond = (f"blk.{layer}.attn_norm.weight" in tensors for layer in (num_layers - 1, num_layers))
    if not last or beyond:
        keys.corrupt(f"its tensors are not those of {num_layers} layers")
    residual = keys.positive("residual_scale", 1.0)
    is_wide = (hidden_size, num_heads, head_dim) == family.wide_geometry
    scaled_by = hidden_size // num_heads if is_wide else head_dim
    return ModelSpec(
        architecture=architecture,
        hidden_size=hidden_size,
        intermediate_size=keys.size("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.size("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        vocab_size=checkpoint.tensor("token_embd.weight").shape[0],
        max_context=keys.size("context_length"),
        norm_eps=keys.number("attention.layer_norm_rms_epsilon") / residual**2,
        layers=_layers(checkpoint, keys, family, num_layers, head_dim),
        attention_scale=keys.positive("attention.scale", scaled_by**-0.5),
        activation="gelu_tanh" if family.is_gemma else "silu",
        qkv_bias=family.qkv_bias or "blk.0.attn_q.bias" in tensors,
        qk_norm=family.qk_norm,
        post_norms=family.is_gemma,
        tied_embeddings="output.weight" not in tensors,
        embedding_scale=math.sqrt(hidden_size)
        if family.is_gemma
        else keys.positive("embedding_scale", 1.0) / residual,
        logits_scale=1 / keys.positive("logit_scale", 1.0),
        attention_softcap=keys.number("attn_logit_softcapping", 0.0),
        final_softcap=keys.number("final_logit_softcapping", 0.0),
    )


def _layers(
    checkpoint: Checkpoint, keys: Metadata, family: Family, num_layers: int, head_dim: int
) -> tuple[LayerSpec, ...]:
    everywhere = _rope(checkpoint, keys, head_dim).changed(interleaved=family.is_permuted)
    window = keys.integer("attention.sliding_window", 0) or None
    if family.nope_period:
        unturned = everywhere.changed(dim=0, factors=())
        return tuple(
            LayerSpec(window, everywhere if (layer + 1) % family.nope_period else unturned)
            for layer in range(num_layers)
        )
    if not family.window_period:
        return (LayerSpec(window, everywhere),) * num_layers
    local = everywhere
    if family.local_rope_base is not None:
        base = keys.positive("rope.freq_base_swa", family.local_rope_base)
        local = RopeSpec(base, everywhere.dim, everywhere.interleaved)
    period = keys.size("attention.sliding_window_pattern", family.window_period)
    return tuple(
        LayerSpec(None, everywhere) if (layer + 1) % period == 0 else LayerSpec(window, local)
        for layer in range(num_layers)
    )


def _rope(checkpoint: Checkpoint, keys: Metadata, head_dim: int) -> RopeSpec:
    dim = keys.size("rope.dimension_count", head_dim)
    rope = RopeSpec(keys.positive("rope.freq_base", 1e4), dim, interleaved=False)
    if "rope_factors_long.weight" in checkpoint.tensor_names():
        return _longrope(checkpoint, keys, rope)
    if "rope_freqs.weight" in checkpoint.tensor_names():
        return rope.changed(factors=_factors(checkpoint, "rope_freqs.weight", dim))
    kind = keys.get("rope.scaling.type")
    if kind not in (None, "none", "linear", "yarn"):
        keys.unsupported(f"RoPE scaling of the kind {kind!r}")
    factor = keys.positive("rope.scaling.factor", 1.0)
    if kind == "linear":
        rope = rope.changed(factors=linear_factors(dim, factor))
    if kind == "yarn":
        original = keys.size("rope.scaling.original_context_length", keys.size("context_length"))
        turns = ("rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow")
        factors = yarn_factors(keys, rope.base, dim, factor, original, turns)
        scale = keys.positive("rope.scaling.attn_factor", 1.0) * yarn_scale(factor)
        rope = rope.changed(factors=factors, scale=scale)
    return rope


def _longrope(checkpoint: Checkpoint, keys: Metadata, rope: RopeSpec) -> RopeSpec:
    short, long = (
        _factors(checkpoint, f"rope_factors_{kind}.weight", rope.dim) for kind in ("short", "long")
    )
    original = keys.size("rope.scaling.original_context_length", keys.size("context_length"))
    scale = keys.positive("rope.scaling.attn_factor", 1.0)
    return rope.changed(factors=short, long_factors=long, original_context=original, scale=scale)


def _factors(checkpoint: Checkpoint, name: str, dim: int) -> tuple[float, ...]:
    tensor = checkpoint.tensor(name)
    if tensor.dtype != "F32" or tensor.shape != (dim // 2,):
        raise CorruptCheckpointError(
            f"{checkpoint.path} cannot be right: {name} is not one F32 for each pair of a head's elements."
        )
    factors = tuple(tensor.data.cast("B").cast("f"))
    if not all(0 < factor < math.inf for factor in factors):
        raise CorruptCheckpointError(
            f"{checkpoint.path} cannot be right: {name} has factors that are not above 0."
        )
    return factors
