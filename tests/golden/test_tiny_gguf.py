"""The tiny models once more, as the GGUF files that llama.cpp's converter would make of them.

Names of tensors come from the `gguf` package, so they are not ours.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.device.ops.dequantize import tensor_values
from ratoon.device.ops.protocol import Floats, Ops
from ratoon.device.ops.reference import ReferenceOps

FOLDER = Path(__file__).parent / "tiny"
TOLERANCE = 5e-5
ARCHITECTURES = {
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "rope-linear": gguf.MODEL_ARCH.LLAMA,
    "rope-yarn": gguf.MODEL_ARCH.LLAMA,
    "rope-llama3": gguf.MODEL_ARCH.LLAMA,
}
PERMUTED = (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.GRANITE, gguf.MODEL_ARCH.SMOLLM3)


def converted(name: str) -> dict[str, NDArray[np.float32]]:
    """Return the tensors under llama.cpp's names, rows of q and k reordered where it does so."""
    checkpoint, arch = open_checkpoint(FOLDER / name), ARCHITECTURES[name]
    names = gguf.get_tensor_name_map(arch, 4)
    tensors = {}
    for theirs in checkpoint.tensor_names():
        values = tensor_values(checkpoint.tensor(theirs))
        if arch in PERMUTED and theirs.endswith(("q_proj.weight", "k_proj.weight")):
            halves = values.reshape(-1, 2, 8, values.shape[1])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        ours = names.get_name(theirs, try_suffixes=(".weight",))
        assert ours is not None, theirs
        tensors[ours] = values
    return tensors


def metadata(config: dict[str, Any]) -> dict[str, Any]:
    rope = config["rope_parameters"]
    keys: dict[str, Any] = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "attention.scale": config.get("attention_multiplier"),
        "attention.sliding_window": config.get("sliding_window"),
        "embedding_scale": config.get("embedding_multiplier"),
        "residual_scale": config.get("residual_multiplier"),
        "logit_scale": config.get("logits_scaling"),
        "rope.freq_base": rope["rope_theta"],
        "rope.dimension_count": int(config["head_dim"] * rope.get("partial_rotary_factor", 1)),
        "rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
    }
    if rope["rope_type"] in ("linear", "yarn"):
        keys |= {"rope.scaling.type": rope["rope_type"], "rope.scaling.factor": rope["factor"]}
    for speed in ("fast", "slow"):
        keys[f"rope.scaling.yarn_beta_{speed}"] = rope.get(f"beta_{speed}")
    if rope["rope_type"] == "longrope":
        longer = math.log(config["max_position_embeddings"] / 16) / math.log(16)
        keys["rope.scaling.attn_factor"] = math.sqrt(1 + longer)
    return keys


def rope_tensors(config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    rope = config["rope_parameters"]
    if rope["rope_type"] == "longrope":
        return {
            f"rope_factors_{kind}.weight": np.array(rope[f"{kind}_factor"], np.float32)
            for kind in ("short", "long")
        }
    if rope["rope_type"] != "llama3":
        return {}
    frequencies = rope["rope_theta"] ** (-np.arange(0, 1, 1 / 8))
    turns = 16 * frequencies / (2 * math.pi)
    smooth = np.clip((turns - 1) / 3, 0, 1)
    return {"rope_freqs.weight": (1 / (smooth + (1 - smooth) / rope["factor"])).astype(np.float32)}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        config = json.loads((FOLDER / name / "config.json").read_text())
        architecture = gguf.MODEL_ARCH_NAMES[ARCHITECTURES[name]]
        writer = gguf.GGUFWriter(tmp_path / "model.gguf", architecture)
        for key, value in metadata(config).items():
            name_in_file = f"{architecture}.{key}"
            if isinstance(value, int):
                writer.add_uint32(name_in_file, value)
            elif isinstance(value, float):
                writer.add_float32(name_in_file, value)
            elif isinstance(value, str):
                writer.add_string(name_in_file, value)
        for tensor, values in (converted(name) | rope_tensors(config)).items():
            writer.add_tensor(tensor, np.ascontiguousarray(values, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / "model.gguf"

    return write


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_converted_model_computes_what_was_recorded(
    name: str, write: Callable[[str], Path], tiny_logits: Callable[[Path, Ops, list[int]], Floats]
) -> None:
    recorded = json.loads((FOLDER / f"{name}.json").read_text())
    logits = tiny_logits(write(name), ReferenceOps(), recorded["tokens"])
    np.testing.assert_allclose(logits, np.array(recorded["logits"]), atol=TOLERANCE, rtol=0)
