"""What each file format and family calls its tensors.

Names are those of gguf-py (constants.py) and of the model classes in Hugging Face's `transformers`. The
order of rows in q and k, which also differs between the formats, is no matter of names:
`RopeSpec.interleaved` tells it.
"""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class TensorNames:
    """Names without `.weight` or `.bias`. `layer` with the layer's number goes before those of a layer.

    Some files have q, k and v in one tensor, `fused_qkv`, and gate and up in another, `fused_gate_up`.
    `norm_offset` is what the family leaves to the reader to add to its norm weights.
    """

    layer: str
    embedding: str
    final_norm: str
    head: str
    attention_norm: str
    qkv: tuple[str, str, str]
    q_norm: str
    k_norm: str
    attention_out: str
    attention_post_norm: str
    feed_forward_norm: str
    gate: str
    up: str
    down: str
    feed_forward_post_norm: str
    fused_qkv: str
    fused_gate_up: str
    norm_offset: float = 0.0


GGUF = TensorNames(
    layer="blk.{}.",
    embedding="token_embd",
    final_norm="output_norm",
    head="output",
    attention_norm="attn_norm",
    qkv=("attn_q", "attn_k", "attn_v"),
    q_norm="attn_q_norm",
    k_norm="attn_k_norm",
    attention_out="attn_output",
    attention_post_norm="post_attention_norm",
    feed_forward_norm="ffn_norm",
    gate="ffn_gate",
    up="ffn_up",
    down="ffn_down",
    feed_forward_post_norm="post_ffw_norm",
    fused_qkv="attn_qkv",
    fused_gate_up="ffn_up",  # where there is no gate
)

HUGGING_FACE = TensorNames(
    layer="model.layers.{}.",
    embedding="model.embed_tokens",
    final_norm="model.norm",
    head="lm_head",
    attention_norm="input_layernorm",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
    attention_out="self_attn.o_proj",
    attention_post_norm="post_attention_layernorm",
    feed_forward_norm="post_attention_layernorm",  # where there are no post norms
    gate="mlp.gate_proj",
    up="mlp.up_proj",
    down="mlp.down_proj",
    feed_forward_post_norm="post_feedforward_layernorm",
    fused_qkv="self_attn.qkv_proj",
    fused_gate_up="mlp.gate_up_proj",
)

HUGGING_FACE_GEMMA = replace(HUGGING_FACE, feed_forward_norm="pre_feedforward_layernorm", norm_offset=1.0)


def tensor_names(file_format: Literal["gguf", "safetensors"], architecture: str) -> TensorNames:
    """Return the names that a file of this format and GGUF architecture name uses."""
    if file_format == "gguf":
        return GGUF
    return HUGGING_FACE_GEMMA if architecture.startswith("gemma") else HUGGING_FACE
