from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ratoon.checkpoint.formats import open_checkpoint
from ratoon.errors import CheckpointError, UnsupportedModelError
from ratoon.spec.model_reader import read_model_spec

MakeCheckpoint = Callable[..., Any]


def test_an_unknown_architecture_is_refused_by_name(gguf_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(UnsupportedModelError, match="'mamba'") as caught:
        read_model_spec(gguf_checkpoint("mamba"))
    assert caught.value.hint is not None
    assert "qwen3" in caught.value.hint


@pytest.mark.parametrize(
    ("tensor", "part"),
    [
        ("blk.0.ffn_gate_exps.weight", "mixture of experts"),
        ("blk.0.attn_output.bias", r"bias blk\.0\.attn_output\.bias"),
        ("blk.0.ffn_up.bias", r"bias blk\.0\.ffn_up\.bias"),
    ],
)
def test_tensors_that_would_be_left_out_are_refused(
    gguf_checkpoint: MakeCheckpoint, tensor: str, part: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=part):
        read_model_spec(gguf_checkpoint(extra_tensors=(tensor,)))


def test_the_same_holds_in_safetensors(config_checkpoint: MakeCheckpoint) -> None:
    biases = tuple(f"model.layers.0.self_attn.{name}_proj.bias" for name in "qkv")
    assert read_model_spec(config_checkpoint(extra_tensors=biases)).qkv_bias
    for tensor in ("model.layers.0.self_attn.o_proj.bias", "model.layers.0.mlp.experts.0.w1.weight"):
        with pytest.raises(UnsupportedModelError):
            read_model_spec(config_checkpoint(extra_tensors=(tensor,)))


def test_a_real_model_is_read(smollm2_path: Path) -> None:
    spec = read_model_spec(open_checkpoint(smollm2_path))
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (30, 9, 3, 64)
    assert (spec.hidden_size, spec.intermediate_size, spec.vocab_size) == (576, 1536, 49152)
    assert (spec.max_context, spec.layers[0].rope.base, spec.tied_embeddings) == (8192, 1e5, True)


NONSENSE = st.sampled_from(
    [
        None,
        True,
        0,
        1,
        -1,
        3,
        1 << 62,
        10**400,
        0.0,
        -0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        [1],
        {},
        {"a": 1},
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
@given(
    data=st.data(),
    architecture=st.sampled_from(["llama", "qwen2", "gemma2", "gemma3"]),
    form=st.sampled_from(["gguf", "config"]),
)
def test_nonsense_in_the_metadata_is_read_or_refused_but_never_breaks_the_reader(
    gguf_checkpoint: MakeCheckpoint,
    config_checkpoint: MakeCheckpoint,
    data: st.DataObject,
    architecture: str,
    form: str,
) -> None:
    checkpoint = (gguf_checkpoint if form == "gguf" else config_checkpoint)(architecture)
    scaling = {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1, "high_freq_factor": 4,
               "original_max_position_embeddings": 8}  # fmt: skip
    values: dict[str, object] = {
        **checkpoint.metadata,
        f"{architecture}.attention.key_length": 4,
        f"{architecture}.attention.sliding_window": 8,
        f"{architecture}.attention.sliding_window_pattern": 2,
        "sliding_window": 8,
        "layer_types": ["full_attention"] * 2,
        "rope_scaling": scaling,
    }
    for key in data.draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3)):
        values[key] = data.draw(NONSENSE)
    for key in data.draw(st.lists(st.sampled_from(sorted(scaling)), max_size=2)):
        scaling[key] = data.draw(NONSENSE)
    checkpoint.metadata = values
    with suppress(CheckpointError):
        spec = read_model_spec(checkpoint)
        assert spec.attention_scale > 0
