"""Reading a `ModelSpec` from a checkpoint, whatever its format."""

import re

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.spec.families import FAMILIES
from ratoon.spec.gguf_metadata import spec_of_gguf
from ratoon.spec.hf_config import spec_of_config
from ratoon.spec.model_spec import ModelSpec

_QKV_BIAS = re.compile(r"\.(attn_[qkv]|self_attn\.[qkv]_proj)\.bias$")


def read_model_spec(checkpoint: Checkpoint) -> ModelSpec:
    """Return the model's geometry and switches.

    Raises `UnsupportedModelError` naming an architecture or a setting that is not implemented, and
    `CorruptCheckpointError` for metadata that cannot be right.
    """
    family = FAMILIES.get(checkpoint.architecture)
    if family is None:
        raise UnsupportedModelError(
            f"{checkpoint.path} has the architecture {checkpoint.architecture!r}, which is not implemented.",
            hint=f"Ratoon runs {', '.join(FAMILIES)}.",
        )
    _refuse_unknown_parts(checkpoint)
    spec = (spec_of_gguf if checkpoint.format == "gguf" else spec_of_config)(checkpoint, family)
    _check(spec, checkpoint)
    return spec


def _refuse_unknown_parts(checkpoint: Checkpoint) -> None:
    """Refuse tensors that would be left out of the computation without a word."""
    for name in checkpoint.tensor_names():
        if "_exps." in name or ".experts." in name:
            part = "a mixture of experts"
        elif name.endswith(".bias") and not _QKV_BIAS.search(name):
            part = f"the bias {name}"
        else:
            continue
        raise UnsupportedModelError(f"{checkpoint.path} has {part}, which is not implemented.")


def _check(spec: ModelSpec, checkpoint: Checkpoint) -> None:
    """Refuse numbers that do not fit each other."""
    wrong = [
        f"RoPE turns {dim} elements of a head of {spec.head_dim}"
        for dim in {layer.rope.dim for layer in spec.layers}
        if dim % 2 or dim > spec.head_dim
    ]
    if spec.num_heads % spec.num_kv_heads:
        wrong.append(f"{spec.num_heads} heads do not share {spec.num_kv_heads} KV heads")
    if wrong:
        raise CorruptCheckpointError(f"{checkpoint.path} cannot be right: {wrong[0]}.")
