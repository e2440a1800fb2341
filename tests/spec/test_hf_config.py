import math
from collections.abc import Callable
from typing import Any

import pytest

from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec

MakeCheckpoint = Callable[..., Any]


def test_a_llama_is_read_with_its_defaults(config_checkpoint: MakeCheckpoint) -> None:
    rope = RopeSpec(5e4, dim=4, interleaved=False)
    assert read_model_spec(config_checkpoint(head_dim=None, sliding_window=None)) == ModelSpec(
        architecture="llama",
        hidden_size=16,
        intermediate_size=24,
        num_heads=4,
        num_kv_heads=2,
        head_dim=4,
        vocab_size=11,
        max_context=128,
        norm_eps=1e-5,
        layers=(LayerSpec(None, rope), LayerSpec(None, rope)),
        attention_scale=0.5,
        tied_embeddings=True,
    )


@pytest.mark.parametrize(
    ("changes", "extra", "tied"),
    [
        ({"tie_word_embeddings": True}, ("lm_head.weight",), True),
        ({"tie_word_embeddings": False}, ("lm_head.weight",), False),
        ({}, ("lm_head.weight",), False),
        ({"tie_word_embeddings": False}, (), True),
    ],
)
def test_embeddings_are_tied_where_the_model_says_so_or_has_no_head(
    config_checkpoint: MakeCheckpoint, changes: dict[str, object], extra: tuple[str, ...], tied: bool
) -> None:
    assert read_model_spec(config_checkpoint(extra_tensors=extra, **changes)).tied_embeddings is tied


def test_mistral_sees_a_window_everywhere(config_checkpoint: MakeCheckpoint) -> None:
    assert [layer.window for layer in read_model_spec(config_checkpoint(sliding_window=32)).layers] == [
        32,
        32,
    ]


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"use_sliding_window": False, "sliding_window": 8, "max_window_layers": 0}, [None] * 4),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 3}, [None, None, None, 8]),
        ({"sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"] * 2}, [8, None] * 2),
    ],
)
def test_qwen_windows_begin_where_the_configuration_says(
    config_checkpoint: MakeCheckpoint, changes: dict[str, object], windows: list[int | None]
) -> None:
    spec = read_model_spec(config_checkpoint("qwen2", 4, **changes))
    assert [layer.window for layer in spec.layers] == windows
    assert spec.qkv_bias


def test_gemma3_in_both_forms_of_configuration(config_checkpoint: MakeCheckpoint) -> None:
    common = {
        "sliding_window": 8,
        "query_pre_attn_scalar": 64,
        "final_logit_softcapping": None,
        "head_dim": 4,
    }
    old = config_checkpoint(
        "gemma3",
        6,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        **common,
    )
    new = config_checkpoint(
        "gemma3",
        6,
        rope_theta=None,
        layer_types=["sliding_attention"] * 5 + ["full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        **common,
    )
    spec = read_model_spec(old)
    assert spec == read_model_spec(new)
    assert spec.layers[0] == LayerSpec(8, RopeSpec(1e4, 4, interleaved=False))
    assert spec.layers[5] == LayerSpec(None, RopeSpec(1e6, 4, interleaved=False, factors=(8.0, 8.0)))
    assert (spec.attention_scale, spec.embedding_scale) == (1 / 8, math.sqrt(16))
    assert (spec.qk_norm, spec.post_norms, spec.activation) == (True, True, "gelu_tanh")


def test_gemma2_alternates_and_has_soft_caps(config_checkpoint: MakeCheckpoint) -> None:
    spec = read_model_spec(
        config_checkpoint(
            "gemma2", 4, sliding_window=8, attn_logit_softcapping=50.0, final_logit_softcapping=30.0
        )
    )
    assert [layer.window for layer in spec.layers] == [8, None, 8, None]
    assert (spec.attention_softcap, spec.final_softcap) == (50.0, 30.0)


def test_both_forms_of_rope_settings_are_one(config_checkpoint: MakeCheckpoint) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }
    old = read_model_spec(config_checkpoint(rope_scaling=scaling))
    new = read_model_spec(config_checkpoint(rope_theta=None, rope_parameters=scaling | {"rope_theta": 5e4}))
    assert old == new
    assert len(old.layers[0].rope.factors) == 2


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden_act": "relu"}, "'relu'"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"rope_scaling": {"type": "wavy", "factor": 2.0}}, "'wavy'"),
        ({"sliding_window": 8, "layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
    ],
)
def test_what_is_not_implemented_is_named(
    config_checkpoint: MakeCheckpoint, changes: dict[str, object], part: str
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read_model_spec(config_checkpoint(**changes))
    assert part in caught.value.message


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"hidden_size": None}, "lacks hidden_size"),
        ({"num_hidden_layers": 3}, "no tensors for 3 layers"),
        ({"hidden_size": -1}, "-1"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ({"query_pre_attn_scalar": -4}, "-4"),
        ({"rope_scaling": [1]}, "rope_scaling is not a table"),
        ({"rope_scaling": {"type": "linear"}}, "lacks factor"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4,
             "high_freq_factor": 1, "original_max_position_embeddings": 8}},
            "out of order",
        ),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_right_are_named(
    config_checkpoint: MakeCheckpoint, changes: dict[str, object], part: str
) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        read_model_spec(config_checkpoint(**changes))
    assert part in caught.value.message
