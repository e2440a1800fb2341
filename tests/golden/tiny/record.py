"""Records the tiny models and their logits: `python record.py [NAME ...]`.

It needs torch and transformers.

Every switch is set to something that changes the logits visibly: windows shorter than the prompt, soft caps
that bite, a query scale that is not the head size, two RoPE bases, norms far from one.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found]
import transformers  # type: ignore[import-not-found]

FOLDER = Path(__file__).parent
SHAPE: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "query_pre_attn_scalar": 11,
    "sliding_window": 9,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "attn_implementation": "eager",
}
PLAIN: dict[str, Any] = SHAPE | {"num_hidden_layers": 2, "layer_types": None, "sliding_window": None}
PLAIN.pop("query_pre_attn_scalar")
LLAMA = transformers.LlamaConfig, transformers.LlamaForCausalLM


def scaled(kind: str, **settings: Any) -> dict[str, Any]:
    """Return a RoPE scaling that the 40 tokens go beyond: the original context is 16."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 500.0, **settings}}


MODELS: dict[str, tuple[Any, Any]] = {
    "gemma2": (
        transformers.Gemma2Config(
            **SHAPE,
            attn_logit_softcapping=4.0,
            final_logit_softcapping=2.0,
            rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        ),
        transformers.Gemma2ForCausalLM,
    ),
    "gemma3": (
        transformers.Gemma3TextConfig(
            **SHAPE,
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
            },
        ),
        transformers.Gemma3ForCausalLM,
    ),
    "gemma3-images": (
        transformers.Gemma3Config(
            text_config=SHAPE
            | {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
                }
            },
            vision_config={
                "hidden_size": 8,
                "intermediate_size": 8,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "image_size": 8,
                "patch_size": 4,
            },
            mm_tokens_per_image=4,
            attn_implementation="eager",
        ),
        transformers.Gemma3ForConditionalGeneration,
    ),
    "qwen3": (
        transformers.Qwen3Config(**PLAIN, **scaled("default"), tie_word_embeddings=True),
        transformers.Qwen3ForCausalLM,
    ),
    "granite": (
        transformers.GraniteConfig(
            **PLAIN,
            **scaled("default"),
            embedding_multiplier=3.0,
            attention_multiplier=0.4,
            residual_multiplier=0.3,
            logits_scaling=2.5,
            rms_norm_eps=0.02,
        ),
        transformers.GraniteForCausalLM,
    ),
    "smollm3": (
        transformers.SmolLM3Config(**PLAIN | {"num_hidden_layers": 4}, **scaled("default")),
        transformers.SmolLM3ForCausalLM,
    ),
    "phi3": (
        transformers.Phi3Config(
            **PLAIN | {"sliding_window": 30},
            original_max_position_embeddings=16,
            **scaled(
                "longrope",
                partial_rotary_factor=0.75,
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                long_factor=[1.5, 2.0, 2.5, 4.0, 6.0, 7.0],
            ),
        ),
        transformers.Phi3ForCausalLM,
    ),
    "rope-linear": (LLAMA[0](**PLAIN, **scaled("linear", factor=3.0)), LLAMA[1]),
    "rope-dynamic": (
        LLAMA[0](**PLAIN | {"max_position_embeddings": 16}, **scaled("dynamic", factor=4.0)),
        LLAMA[1],
    ),
    "rope-yarn": (
        LLAMA[0](
            **PLAIN,
            **scaled("yarn", factor=8.0, original_max_position_embeddings=16, beta_fast=2.0, beta_slow=0.2),
        ),
        LLAMA[1],
    ),
    "rope-llama3": (
        LLAMA[0](
            **PLAIN,
            **scaled(
                "llama3",
                factor=8.0,
                original_max_position_embeddings=16,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
            ),
        ),
        LLAMA[1],
    ),
    "qwen3moe": (
        transformers.Qwen3MoeConfig(
            **PLAIN,
            **scaled("default"),
            num_experts=6,
            num_experts_per_tok=3,
            moe_intermediate_size=32,
            norm_topk_prob=True,
            decoder_sparse_step=1,
        ),
        transformers.Qwen3MoeForCausalLM,
    ),
}


def record(name: str) -> None:
    """Write one model, rounded to float16, and its float32 logits."""
    config, kind = MODELS[name]
    torch.manual_seed(13)
    model = kind(config).eval()
    with torch.no_grad():
        for key, values in model.named_parameters():
            deviation = 0.4 if values.ndim == 1 else 0.2 if "embed" in key else 2 / values.shape[-1] ** 0.5
            values.copy_(torch.normal(0, deviation, values.shape).half())
        tokens = torch.randint(3, 48, (40,))
        logits = model(tokens[None]).logits[0]
        model.half().save_pretrained(FOLDER / name)
    rows = [[round(value, 5) for value in row] for row in logits.tolist()]
    facts = {
        "engine": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, eager",
        "tokens": tokens.tolist(),
    }
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    (FOLDER / f"{name}.json").write_text(f'{json.dumps(facts)[:-1]}, "logits": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        record(each)
