"""`ModelSpec` from a `config.json` in Hugging Face's layout.

Keys are those of the configuration classes in `transformers`, in the forms of version 4 (`rope_theta`,
`rope_scaling`) and version 5 (`rope_parameters`).
"""

import math

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.spec.families import Family
from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec
from ratoon.spec.rope_scaling import config_rope
from ratoon.spec.typed_metadata import Metadata


def spec_of_config(checkpoint: Checkpoint, family: Family) -> ModelSpec:
    """Read the spec. Raises `CorruptCheckpointError` or `UnsupportedModelError`."""
    config = Metadata({**(family.defaults or {}), **checkpoint.metadata}, checkpoint.path)
    _refuse_what_is_missing(config, family)
    tensors = set(checkpoint.tensor_names())
    hidden_size, num_heads = config.size("hidden_size"), config.size("num_attention_heads")
    num_layers = config.size("num_hidden_layers")
    if f"model.layers.{num_layers - 1}.input_layernorm.weight" not in tensors:
        config.corrupt(f"it has no tensors for {num_layers} layers")
    head_dim = config.size("head_dim", hidden_size // num_heads)
    residual = config.positive("residual_multiplier", 1.0)
    return ModelSpec(
        architecture=checkpoint.architecture,
        hidden_size=hidden_size,
        intermediate_size=config.size("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=config.size("num_key_value_heads", num_heads),
        head_dim=head_dim,
        vocab_size=checkpoint.tensor("model.embed_tokens.weight").shape[0],
        max_context=_max_context(config),
        norm_eps=config.number("rms_norm_eps") / residual**2,
        layers=_layers(config, family, num_layers, head_dim),
        attention_scale=config.positive(
            "attention_multiplier", config.positive("query_pre_attn_scalar", head_dim) ** -0.5
        ),
        activation="gelu_tanh" if family.is_gemma else "silu",
        qkv_bias=family.qkv_bias or "model.layers.0.self_attn.q_proj.bias" in tensors,
        qk_norm=family.qk_norm,
        post_norms=family.is_gemma,
        tied_embeddings=bool(config.get("tie_word_embeddings")) or "lm_head.weight" not in tensors,
        embedding_scale=math.sqrt(hidden_size)
        if family.is_gemma
        else config.positive("embedding_multiplier", 1.0) / residual,
        logits_scale=1 / config.positive("logits_scaling", 1.0),
        attention_softcap=config.number("attn_logit_softcapping", 0.0),
        final_softcap=config.number("final_logit_softcapping", 0.0),
    )


def _refuse_what_is_missing(config: Metadata, family: Family) -> None:
    if config.get("quantization_config"):
        config.unsupported("weights compressed as quantization_config says")
    activation = config.get("hidden_activation") or config.get("hidden_act")
    expected = "gelu_pytorch_tanh" if family.is_gemma else "silu"
    if activation not in (None, expected):
        config.unsupported(f"the activation {activation!r}")


def _layers(config: Metadata, family: Family, num_layers: int, head_dim: int) -> tuple[LayerSpec, ...]:
    window = _window(config)
    windowed = _windowed_layers(config, family, num_layers) if window else [False] * num_layers
    everywhere, local = _ropes(config, family, head_dim)
    turned = _turned_layers(config, family, num_layers)
    return tuple(
        LayerSpec(
            window if is_windowed else None,
            (local if is_windowed else everywhere).changed(
                **({} if is_turned else {"dim": 0, "factors": ()})
            ),
        )
        for is_windowed, is_turned in zip(windowed, turned, strict=True)
    )


def _turned_layers(config: Metadata, family: Family, num_layers: int) -> list[bool]:
    """Return for each layer whether it has a positional embedding."""
    listed = config.get("no_rope_layers")  # 1 where there is one, in spite of the name
    if isinstance(listed, list) and family.nope_period:
        if len(listed) != num_layers:
            config.corrupt(f"it tells of {len(listed)} layers whether they have RoPE, but has {num_layers}")
        return list(map(bool, listed))
    period = config.integer("no_rope_layer_interval", family.nope_period) if family.nope_period else 0
    return [not period or (layer + 1) % period != 0 for layer in range(num_layers)]


def _window(config: Metadata) -> int | None:
    if config.get("use_sliding_window") is False:  # Qwen's: the window is written down, but not used
        return None
    return config.integer("sliding_window", 0) or None


def _windowed_layers(config: Metadata, family: Family, num_layers: int) -> list[bool]:
    """Return for each layer whether it sees only a window, where the model has one."""
    listed = config.get("layer_types")
    if isinstance(listed, list):
        kinds = list(map(str, listed))
        if len(kinds) != num_layers or set(kinds) - {"full_attention", "sliding_attention"}:
            config.unsupported(f"layers of the kinds {', '.join(sorted(set(kinds)))}")
        return [kind == "sliding_attention" for kind in kinds]
    if family.window_period:
        period = config.size("sliding_window_pattern", family.window_period)
        return [(layer + 1) % period != 0 for layer in range(num_layers)]
    first = config.integer("max_window_layers", 0)
    return [layer >= first for layer in range(num_layers)]


def _max_context(config: Metadata) -> int:
    """Return the context, which two ways of scaling RoPE stretch beyond what is written down."""
    context = config.size("max_position_embeddings")
    for table in (config.table("rope_parameters"), config.table("rope_scaling")):
        kind = table.get("rope_type") or table.get("type")
        if kind == "dynamic":
            context = int(context * table.positive("factor"))
        elif kind == "yarn":
            original = table.size("original_max_position_embeddings", context)
            context = max(context, int(original * table.positive("factor", 1.0)))
    return context


def _ropes(config: Metadata, family: Family, head_dim: int) -> tuple[RopeSpec, RopeSpec]:
    """Return the embeddings of layers that see everything and of those that see a window."""
    table = config.table("rope_parameters")
    if isinstance(table.get("full_attention"), dict):
        full, sliding = table.table("full_attention"), table.table("sliding_attention")
        return _rope_of(full, config, head_dim), _rope_of(sliding, config, head_dim)
    part = table if table.get("partial_rotary_factor") is not None else config
    dim = int(head_dim * part.positive("partial_rotary_factor", 1.0))
    if table.get("rope_theta") is not None:
        everywhere = _rope_of(table, config, dim)
    else:
        everywhere = config_rope(
            config.table("rope_scaling"), config, config.positive("rope_theta", 1e4), dim
        )
    if family.local_rope_base is None:
        return everywhere, everywhere
    base = config.positive("rope_local_base_freq", family.local_rope_base)
    return everywhere, RopeSpec(base, dim, interleaved=False)


def _rope_of(table: Metadata, config: Metadata, dim: int) -> RopeSpec:
    return config_rope(table, config, table.positive("rope_theta"), dim)
