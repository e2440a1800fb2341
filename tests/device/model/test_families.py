"""Every family, in both file formats, against a forward pass written straight from its definition.

The other implementation below is float64, walks the sequence head by head, keeps no cache and takes
its settings from the Hugging Face configuration. It shares nothing with the decoder but the weights.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ratoon.checkpoint.adapter_folder import read_adapter
from ratoon.checkpoint.formats import open_checkpoint
from ratoon.device.model.adapter import adapter_weights
from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.native import NativeOps
from ratoon.device.ops.protocol import Adapter, StepInputs
from ratoon.device.ops.reference import ReferenceOps
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import ModelSpec

Config = dict[str, Any]
Arrays = dict[str, NDArray[np.float32]]

SMALL: Config = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 71,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1000.0,
    "tie_word_embeddings": False,
}
GEMMA: Config = SMALL | {
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 16,
    "sliding_window": 9,
    "tie_word_embeddings": True,
}
LLAMA3_ROPE: Config = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3_KEYS = ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
CONFIGS: dict[str, Config] = {
    "llama": SMALL | {"model_type": "llama"},
    "llama3": SMALL | {"model_type": "llama", "rope_scaling": LLAMA3_ROPE, "tie_word_embeddings": True},
    "mistral": SMALL | {"model_type": "mistral", "sliding_window": 11},
    "qwen2": SMALL | {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": SMALL | {"model_type": "qwen3", "head_dim": 24},
    "gemma2": GEMMA
    | {
        "model_type": "gemma2",
        "num_hidden_layers": 4,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
    },
    "gemma3": GEMMA | {"model_type": "gemma3_text", "num_hidden_layers": 7, "rope_local_base_freq": 50.0},
}
TOKENS = np.random.default_rng(5).integers(0, 71, 40)


# The other implementation.


def other_frequencies(c: Config, windowed: bool) -> list[float]:
    base = c.get("rope_local_base_freq", c["rope_theta"]) if windowed else c["rope_theta"]
    freqs = [1.0 / base ** (2 * j / c["head_dim"]) for j in range(c["head_dim"] // 2)]
    scaling = c.get("rope_scaling")
    if not scaling:
        return freqs
    old, low, high = (scaling[k] for k in LLAMA3_KEYS)
    slowed = []
    for f in freqs:
        wave = 2 * math.pi / f
        if wave < old / high:
            slowed.append(f)
        elif wave > old / low:
            slowed.append(f / scaling["factor"])
        else:
            mix = (old / wave - low) / (high - low)
            slowed.append((1 - mix) * f / scaling["factor"] + mix * f)
    return slowed


def other_logits(c: Config, w: Mapping[str, Any], tokens: NDArray[Any]) -> NDArray[Any]:
    kind, gemma = c["model_type"], c["model_type"].startswith("gemma")
    d, eps = c["head_dim"], c["rms_norm_eps"]

    def rms(vec: Any, key: str) -> Any:
        gain = w[key].astype(float) + (1.0 if gemma else 0.0)
        return gain * vec / math.sqrt(sum(t * t for t in vec) / len(vec) + eps)

    def lin(key: str, vec: Any) -> Any:
        out = w[key + ".weight"].astype(float).dot(vec)
        return out + w[key + ".bias"] if key + ".bias" in w else out

    def cap(score: Any, limit: float | None) -> Any:
        return limit * np.tanh(score / limit) if limit else score

    def turned(vec: Any, pos: int, freqs: list[float]) -> Any:
        out = vec.copy()
        for j, f in enumerate(freqs):
            a, b = vec[j], vec[j + d // 2]
            out[j] = a * math.cos(pos * f) - b * math.sin(pos * f)
            out[j + d // 2] = b * math.cos(pos * f) + a * math.sin(pos * f)
        return out

    def window_of(layer: int) -> int:
        if kind == "mistral":
            return int(c["sliding_window"])
        if kind == "gemma2":
            return int(c["sliding_window"]) if layer % 2 == 0 else 10**9
        if kind == "gemma3_text":
            return int(c["sliding_window"]) if layer % 6 != 5 else 10**9
        return 10**9

    stream = [w["model.embed_tokens.weight"][t].astype(float) for t in tokens]
    if gemma:
        stream = [vec * math.sqrt(c["hidden_size"]) for vec in stream]
    for layer in range(c["num_hidden_layers"]):
        at, window = f"model.layers.{layer}.", window_of(layer)
        freqs = other_frequencies(c, window < 10**9)
        past_k: list[Any] = []
        past_v: list[Any] = []
        for pos, vec in enumerate(stream):
            h = rms(vec, at + "input_layernorm.weight")
            q, k, v = (lin(at + f"self_attn.{name}_proj", h).reshape(-1, d) for name in "qkv")
            if at + "self_attn.q_norm.weight" in w:
                q = np.array([rms(head, at + "self_attn.q_norm.weight") for head in q])
                k = np.array([rms(head, at + "self_attn.k_norm.weight") for head in k])
            q = np.array([turned(head, pos, freqs) for head in q])
            past_k.append(np.array([turned(head, pos, freqs) for head in k]))
            past_v.append(v)
            seen = range(max(0, pos - window + 1), pos + 1)
            heads = []
            for i, head in enumerate(q):
                g = i * len(k) // len(q)
                scale = 1 / math.sqrt(c["query_pre_attn_scalar"] if gemma else d)
                scores = [cap(head.dot(past_k[s][g]) * scale, c.get("attn_logit_softcapping")) for s in seen]
                p = [math.exp(score - max(scores)) for score in scores]
                heads.append(sum(x * past_v[s][g] for x, s in zip(p, seen, strict=True)) / sum(p))
            mixed = lin(at + "self_attn.o_proj", np.concatenate(heads))
            if gemma:
                mixed = rms(mixed, at + "post_attention_layernorm.weight")
            vec = vec + mixed
            before = "pre_feedforward_layernorm" if gemma else "post_attention_layernorm"
            h = rms(vec, at + before + ".weight")
            gate, up = lin(at + "mlp.gate_proj", h), lin(at + "mlp.up_proj", h)
            if gemma:
                gate = 0.5 * gate * (1 + np.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
            else:
                gate = gate / (1 + np.exp(-gate))
            down = lin(at + "mlp.down_proj", gate * up)
            if gemma:
                down = rms(down, at + "post_feedforward_layernorm.weight")
            stream[pos] = vec + down
    head_key = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
    return np.array(
        [
            cap(lin(head_key, rms(vec, "model.norm.weight")), c.get("final_logit_softcapping"))
            for vec in stream
        ]
    )


# Random models in both formats.


def random_weights(c: Config) -> Arrays:
    """Return tensors under Hugging Face names, large enough that every switch shows in the logits."""
    rng = np.random.default_rng(13)
    gemma = c["model_type"].startswith("gemma")
    hidden, inner, d = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    norms = ["input_layernorm", "post_attention_layernorm"]
    if gemma:
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (c["vocab_size"], hidden),
        "model.norm": (hidden,),
    }
    if not c["tie_word_embeddings"]:
        shapes["lm_head"] = (c["vocab_size"], hidden)
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        shapes |= {at + norm: (hidden,) for norm in norms}
        shapes |= {at + f"self_attn.{name}_proj": (q if name == "q" else kv, hidden) for name in "qkv"}
        shapes |= {at + "self_attn.o_proj": (hidden, q), at + "mlp.down_proj": (hidden, inner)}
        shapes |= {at + "mlp.gate_proj": (inner, hidden), at + "mlp.up_proj": (inner, hidden)}
        if c["model_type"] in ("qwen3", "gemma3_text"):
            shapes |= {at + "self_attn.q_norm": (d,), at + "self_attn.k_norm": (d,)}
    weights = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            values = (0.0 if gemma else 1.0) + 0.3 * values
        elif name != "model.embed_tokens":
            values *= 2 / math.sqrt(shape[1])
        weights[f"{name}.weight"] = values.astype(np.float32)
        if c["model_type"] == "qwen2" and name.endswith(("q_proj", "k_proj", "v_proj")):
            weights[f"{name}.bias"] = rng.standard_normal(shape[0]).astype(np.float32)
    return weights


GGUF_LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
GGUF_GEMMA_NAMES = GGUF_LAYER_NAMES | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GGUF_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def to_gguf(c: Config, weights: Arrays) -> Arrays:
    """Convert as llama.cpp's converter does: Llama's q and k rows permuted, Gemma's norms one larger."""
    kind = c["model_type"]
    names = GGUF_GEMMA_NAMES if kind.startswith("gemma") else GGUF_LAYER_NAMES
    converted = {}
    for name, values in weights.items():
        if kind in ("llama", "mistral") and (".q_proj" in name or ".k_proj" in name):
            halves = values.reshape(-1, 2, c["head_dim"] // 2, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if kind.startswith("gemma") and values.ndim == 1:
            values = values + np.float32(1)
        if name.startswith("model.layers."):
            _, _, layer, rest = name.split(".", 3)
            stem, suffix = rest.rsplit(".", 1)
            name = f"blk.{layer}.{names[stem]}.{suffix}"
        else:
            name = GGUF_TOP_NAMES[name]
        converted[name] = values
    if "rope_scaling" in c:
        unscaled = {key: value for key, value in c.items() if key != "rope_scaling"}
        factors = np.array(other_frequencies(unscaled, False)) / other_frequencies(c, False)
        converted["rope_freqs.weight"] = factors.astype(np.float32)
    return converted


GGUF_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}


def gguf_metadata(c: Config) -> dict[str, int | float]:
    metadata: dict[str, int | float] = {
        "block_count": c["num_hidden_layers"],
        "context_length": c["max_position_embeddings"],
        "embedding_length": c["hidden_size"],
        "feed_forward_length": c["intermediate_size"],
        "attention.head_count": c["num_attention_heads"],
        "attention.head_count_kv": c["num_key_value_heads"],
        "attention.key_length": c["head_dim"],
        "attention.value_length": c["head_dim"],
        "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
        "rope.freq_base": c["rope_theta"],
    }
    optional = {
        "attention.sliding_window": "sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "rope.freq_base_swa": "rope_local_base_freq",
    }
    return metadata | {key: c[setting] for key, setting in optional.items() if setting in c}


TOLERANCE = 2e-4
OpenDecoder = Callable[..., tuple[Decoder, int]]
LoneStep = Callable[..., StepInputs]
WriteModel = Callable[[str, str], Path]


@pytest.fixture(scope="session")
def write_model(
    tmp_path_factory: pytest.TempPathFactory,
    write_gguf: Callable[..., Path],
    write_safetensors: Callable[..., Path],
) -> WriteModel:
    """Return a function that writes a family's random model in a format."""

    def write(name: str, file_format: str) -> Path:
        config, folder = CONFIGS[name], tmp_path_factory.mktemp(name)
        weights = random_weights(config)
        if file_format == "safetensors":
            return write_safetensors(folder / "model", config, weights)
        architecture = GGUF_ARCHITECTURES.get(config["model_type"], config["model_type"])
        tensors = to_gguf(config, weights)
        return write_gguf(folder / "model.gguf", architecture, gguf_metadata(config), tensors)

    return write


@pytest.fixture(scope="session")
def expected() -> dict[str, NDArray[Any]]:
    """Return the other implementation's logits [tokens, vocab] of every family."""
    return {name: other_logits(config, random_weights(config), TOKENS) for name, config in CONFIGS.items()}


def decoder_logits(decoder: Decoder, num_groups: int, lone_step: LoneStep) -> NDArray[np.float32]:
    """Run `TOKENS` in two chunks."""
    hidden = [
        decoder(
            TOKENS[first:last].astype(np.int32), lone_step(num_groups, first, last), np.arange(last - first)
        )
        for first, last in ((0, 25), (25, 40))
    ]
    return decoder.logits(np.concatenate(hidden))[0]


@pytest.mark.parametrize("file_format", ["gguf", "safetensors"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_family_computes_what_its_definition_says(
    name: str,
    file_format: str,
    expected: dict[str, NDArray[Any]],
    write_model: WriteModel,
    open_decoder: OpenDecoder,
    lone_step: LoneStep,
) -> None:
    logits = decoder_logits(*open_decoder(write_model(name, file_format)), lone_step)
    np.testing.assert_allclose(logits, expected[name], atol=TOLERANCE, rtol=0)


def _with_layers(spec: ModelSpec, **changes: Any) -> ModelSpec:
    return replace(spec, layers=tuple(replace(layer, **changes) for layer in spec.layers))


def _with_windows(spec: ModelSpec, by: int) -> ModelSpec:
    layers = (replace(layer, window=layer.window and layer.window + by) for layer in spec.layers)
    return replace(spec, layers=tuple(layers))


SWITCHES: list[tuple[str, Callable[[ModelSpec], ModelSpec]]] = [
    ("llama", lambda s: _with_layers(s, rope=replace(s.layers[0].rope, interleaved=False))),
    ("llama", lambda s: _with_layers(s, rope=replace(s.layers[0].rope, base=1100.0))),
    ("llama3", lambda s: _with_layers(s, rope=replace(s.layers[0].rope, factors=()))),
    ("mistral", lambda s: _with_windows(s, by=-1)),
    ("mistral", lambda s: _with_windows(s, by=1)),
    ("qwen2", lambda s: replace(s, qkv_bias=False)),
    ("qwen3", lambda s: replace(s, qk_norm=False)),
    ("qwen3", lambda s: replace(s, norm_eps=1e-3)),
    ("gemma2", lambda s: replace(s, attention_softcap=0.0)),
    ("gemma2", lambda s: replace(s, final_softcap=0.0)),
    ("gemma2", lambda s: replace(s, post_norms=False)),
    ("gemma2", lambda s: replace(s, embedding_scale=1.0)),
    ("gemma2", lambda s: replace(s, activation="silu")),
    ("gemma2", lambda s: replace(s, attention_scale=s.attention_scale * 1.05)),
    ("gemma3", lambda s: _with_windows(s, by=1)),
    ("gemma3", lambda s: _with_layers(s, rope=s.layers[0].rope)),
]


@pytest.mark.parametrize(("name", "change"), SWITCHES)
def test_a_switch_that_were_wrong_would_be_seen(
    name: str,
    change: Callable[[ModelSpec], ModelSpec],
    expected: dict[str, NDArray[Any]],
    write_model: WriteModel,
    open_decoder: OpenDecoder,
    lone_step: LoneStep,
) -> None:
    logits = decoder_logits(*open_decoder(write_model(name, "gguf"), change=change), lone_step)
    assert np.abs(logits - expected[name]).max() > 20 * TOLERANCE


def random_adapter(weights: Arrays, *, rank: int = 3) -> dict[str, tuple[Any, Any]]:
    """Return a and b for every linear layer of every block."""
    rng = np.random.default_rng(14)
    pairs = {}
    for name, values in weights.items():
        if name.endswith("_proj.weight"):
            a = rng.standard_normal((rank, values.shape[1])) / math.sqrt(values.shape[1])
            b = rng.standard_normal((values.shape[0], rank)) / 3
            pairs[name.removesuffix(".weight")] = a.astype(np.float32), b.astype(np.float32)
    return pairs


@pytest.mark.parametrize("file_format", ["gguf", "safetensors"])
@pytest.mark.parametrize("name", CONFIGS)
def test_an_adapter_computes_what_its_merged_weights_do(
    name: str,
    file_format: str,
    write_model: WriteModel,
    write_adapter: Callable[..., Path],
    tmp_path: Path,
    open_decoder: OpenDecoder,
    lone_step: LoneStep,
) -> None:
    config = CONFIGS[name]
    weights = random_weights(config)
    pairs = random_adapter(weights)
    folder = read_adapter(write_adapter(tmp_path / "adapter", pairs, lora_alpha=4, use_rslora=True))
    merged = {module + ".weight": 4 / math.sqrt(3) * (b @ a) for module, (a, b) in pairs.items()}
    expected = other_logits(config, weights | {k: weights[k] + v for k, v in merged.items()}, TOKENS)
    path = write_model(name, file_format)
    spec = read_model_spec(open_checkpoint(path))
    for ops in (ReferenceOps(), NativeOps(2)):
        adapter = ops.adapter(adapter_weights(folder, spec))

        def with_adapter(*where: Any, adapter: Adapter = adapter) -> StepInputs:
            return replace(lone_step(*where), adapters=(adapter,))

        logits = decoder_logits(*open_decoder(path, ops=ops), with_adapter)
        np.testing.assert_allclose(logits, expected, atol=3 * TOLERANCE, rtol=0)
