"""Records the tiny models and their logits: `python record.py`, where torch and transformers are installed.

Every switch is set to something that changes the logits visibly: windows shorter than the prompt, soft caps
that bite, a query scale that is not the head size, two RoPE bases, norms far from one.
"""

import json
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
MODELS = {
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
}


def record(name: str) -> None:
    """Write one model, rounded to float16, and its float32 logits."""
    config, kind = MODELS[name]
    torch.manual_seed(13)
    model = kind(config).eval()
    with torch.no_grad():
        for key, values in model.named_parameters():
            deviation = 0.4 if values.ndim == 1 else 0.2 if "embed" in key else 2 / values.shape[1] ** 0.5
            values.copy_(torch.normal(0, deviation, values.shape).half())
        tokens = torch.randint(3, config.vocab_size, (40,))
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
    for each in MODELS:
        record(each)
