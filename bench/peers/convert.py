"""Write a GGUF model of the Llama family in the formats in which the peers are at their best.

    python convert.py MODEL.gguf OUT

makes OUT/q4_0.gguf, OUT/f16.gguf and OUT/hf/ (config.json and float32 safetensors). Matrices are expanded
and, for Q4_0, rounded again, so that every peer runs the same weights up to its own format's rounding.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize

FILE_TYPES = {
    GGMLQuantizationType.F16: LlamaFileType.MOSTLY_F16,
    GGMLQuantizationType.Q4_0: LlamaFileType.MOSTLY_Q4_0,
}


def expanded(reader: GGUFReader) -> dict[str, np.ndarray]:
    """Return every tensor in float32, [rows, columns]."""
    return {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}


def write_gguf(
    reader: GGUFReader, tensors: dict[str, np.ndarray], dtype: GGMLQuantizationType, path: Path
) -> None:
    """Copy the metadata and store the matrices as `dtype`, the vectors in float32."""
    writer = GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in {"general.architecture", "general.file_type"}:
            continue
        kind, *sub = field.types
        value = field.contents()
        if kind == GGUFValueType.ARRAY:
            writer.add_array(field.name, value)
        else:
            writer.add_key_value(field.name, value, kind, *sub)
    writer.add_file_type(FILE_TYPES[dtype])
    for name, values in tensors.items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, quantize(values, dtype), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def hf_name(name: str) -> str:
    """Return transformers' name of a tensor."""
    parts = name.removesuffix(".weight").split(".")
    prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    return f"{prefix}{NAMES[parts[-1]]}.weight"


def half_split(values: np.ndarray, num_heads: int) -> np.ndarray:
    """Undo GGUF's row order of q and k: element pairs (2i, 2i + 1) become (i, i + dim/2)."""
    rows, columns = values.shape
    pairs = values.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(rows, columns))


def write_safetensors(weights: dict[str, np.ndarray], path: Path) -> None:
    """Write the length of a JSON header, the header, and the tensors' bytes."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in weights.items():
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [end, end + values.nbytes]}
        end += values.nbytes
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for values in weights.values():
            file.write(np.ascontiguousarray(values, "<f4"))


def write_hf(reader: GGUFReader, tensors: dict[str, np.ndarray], folder: Path) -> None:
    """Write config.json and model.safetensors."""

    def setting(name: str) -> float:
        return reader.fields[f"llama.{name}"].contents()

    folder.mkdir(exist_ok=True)
    heads = {"attn_q": setting("attention.head_count"), "attn_k": setting("attention.head_count_kv")}
    weights = {}
    for name, values in tensors.items():
        kind = name.removesuffix(".weight").split(".")[-1]
        weights[hf_name(name)] = half_split(values, heads[kind]) if kind in heads else values
    write_safetensors(weights, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": setting("embedding_length"),
        "intermediate_size": setting("feed_forward_length"),
        "num_hidden_layers": setting("block_count"),
        "num_attention_heads": heads["attn_q"],
        "num_key_value_heads": heads["attn_k"],
        "max_position_embeddings": setting("context_length"),
        "rms_norm_eps": setting("attention.layer_norm_rms_epsilon"),
        "rope_theta": setting("rope.freq_base"),
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in tensors,
        "hidden_act": "silu",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def main() -> None:
    """Convert one file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(args.model)
    tensors = expanded(reader)
    write_gguf(reader, tensors, GGMLQuantizationType.Q4_0, args.out / "q4_0.gguf")
    write_gguf(reader, tensors, GGMLQuantizationType.F16, args.out / "f16.gguf")
    write_hf(reader, tensors, args.out / "hf")


if __name__ == "__main__":
    main()
