import math
import struct
from collections.abc import Callable
from typing import Any

import pytest

from ratoon.checkpoint.tensor import RawTensor
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import LayerSpec, ModelSpec, RopeSpec

MakeCheckpoint = Callable[..., Any]


def test_a_llama_is_read_with_its_defaults(gguf_checkpoint: MakeCheckpoint) -> None:
    rope = RopeSpec(5e4, dim=4, interleaved=True)
    assert read_model_spec(gguf_checkpoint()) == ModelSpec(
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


def test_what_stands_in_the_file_goes_before_defaults(gguf_checkpoint: MakeCheckpoint) -> None:
    checkpoint = gguf_checkpoint(
        attention__key_length=8,
        attention__value_length=8,
        attention__head_count_kv=None,
        attention__sliding_window=32,
        rope__dimension_count=6,
        rope__freq_base=None,
        extra_tensors=("output.weight", "blk.0.attn_q.bias"),
    )
    spec = read_model_spec(checkpoint)
    assert (spec.head_dim, spec.num_kv_heads, spec.attention_scale) == (8, 4, 8**-0.5)
    assert spec.layers[0] == LayerSpec(32, RopeSpec(1e4, dim=6, interleaved=True))
    assert not spec.tied_embeddings
    assert spec.qkv_bias


@pytest.mark.parametrize(("architecture", "bias", "norm"), [("qwen2", True, False), ("qwen3", False, True)])
def test_qwen_turns_halves_and_has_its_switch(
    gguf_checkpoint: MakeCheckpoint, architecture: str, bias: bool, norm: bool
) -> None:
    spec = read_model_spec(gguf_checkpoint(architecture))
    assert (spec.qkv_bias, spec.qk_norm) == (bias, norm)
    assert not spec.layers[0].rope.interleaved
    assert spec.activation == "silu"


def test_gemma3_sees_everything_in_every_sixth_layer_and_turns_the_others_on_another_base(
    gguf_checkpoint: MakeCheckpoint,
) -> None:
    checkpoint = gguf_checkpoint("gemma3", 13, attention__sliding_window=512, rope__freq_base=1e6)
    spec = read_model_spec(checkpoint)
    assert [number for number, layer in enumerate(spec.layers) if layer.window is None] == [5, 11]
    assert spec.layers[5] == LayerSpec(None, RopeSpec(1e6, 4, interleaved=False))
    assert spec.layers[12] == LayerSpec(512, RopeSpec(1e4, 4, interleaved=False))
    assert (spec.activation, spec.post_norms, spec.qk_norm) == ("gelu_tanh", True, True)
    assert spec.embedding_scale == math.sqrt(16)


def test_gemma3_files_may_say_what_readers_used_to_know(gguf_checkpoint: MakeCheckpoint) -> None:
    spec = read_model_spec(
        gguf_checkpoint(
            "gemma3",
            4,
            attention__sliding_window=8,
            attention__sliding_window_pattern=2,
            rope__freq_base_swa=2e4,
            rope__scaling__type="linear",
            rope__scaling__factor=8.0,
        )
    )
    assert [layer.window for layer in spec.layers] == [8, None, 8, None]
    assert spec.layers[0].rope == RopeSpec(2e4, 4, interleaved=False)
    assert spec.layers[1].rope.factors == (8.0, 8.0), "only layers that see everything are stretched"


def test_gemma2_alternates_and_has_soft_caps(gguf_checkpoint: MakeCheckpoint) -> None:
    spec = read_model_spec(
        gguf_checkpoint(
            "gemma2",
            4,
            attention__sliding_window=8,
            attn_logit_softcapping=50.0,
            final_logit_softcapping=30.0,
        )
    )
    assert [layer.window for layer in spec.layers] == [8, None, 8, None]
    assert spec.layers[0].rope == spec.layers[1].rope
    assert (spec.attention_softcap, spec.final_softcap) == (50.0, 30.0)
    assert not spec.qk_norm


@pytest.mark.parametrize(("architecture", "hidden_size"), [("gemma2", 4608), ("gemma3", 5376)])
def test_the_27b_gemmas_scale_attention_by_hidden_size_over_heads_however_many_layers_they_have(
    gguf_checkpoint: MakeCheckpoint, architecture: str, hidden_size: int
) -> None:
    shape = {"embedding_length": hidden_size, "attention__head_count": 32}
    wide = read_model_spec(gguf_checkpoint(architecture, 3, attention__key_length=128, **shape))
    other = read_model_spec(gguf_checkpoint(architecture, 46, attention__key_length=256, **shape))
    assert (wide.attention_scale, other.attention_scale) == ((hidden_size / 32) ** -0.5, 256**-0.5)
    said = read_model_spec(gguf_checkpoint(architecture, 3, attention__scale=0.25, **shape))
    assert said.attention_scale == 0.25


def test_factors_of_frequencies_are_read_from_their_tensor(gguf_checkpoint: MakeCheckpoint) -> None:
    checkpoint = gguf_checkpoint()
    factors = memoryview(struct.pack("<2f", 1.0, 4.5))
    checkpoint.tensors["rope_freqs.weight"] = RawTensor("rope_freqs.weight", (2,), "F32", factors)
    assert read_model_spec(checkpoint).layers[0].rope.factors == (1.0, 4.5)
    checkpoint.tensors["rope_freqs.weight"] = RawTensor("rope_freqs.weight", (3,), "F32", factors)
    with pytest.raises(CorruptCheckpointError, match="rope_freqs"):
        read_model_spec(checkpoint)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"expert_count": 8}, "mixture of experts"),
        ({"rope__scaling__type": "wavy"}, "'wavy'"),
        ({"attention__value_length": 128}, "values of another width"),
    ],
)
def test_what_is_not_implemented_is_named(
    gguf_checkpoint: MakeCheckpoint, changes: dict[str, object], part: str
) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        read_model_spec(gguf_checkpoint(**changes))
    assert part in caught.value.message


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"block_count": None}, "lacks llama.block_count"),
        ({"block_count": 3}, "not those of 3 layers"),
        ({"block_count": 1}, "not those of 1 layers"),
        ({"block_count": 0}, "block_count is 0"),
        ({"embedding_length": "wide"}, "'wide'"),
        ({"attention__head_count": [4, 4]}, "[4, 4]"),
        ({"attention__head_count": 0}, "attention.head_count is 0"),
        ({"attention__head_count_kv": 3}, "4 heads do not share 3"),
        ({"attention__head_count_kv": 0}, "head_count_kv is 0"),
        ({"context_length": 1 << 40}, "context_length is"),
        ({"attention__layer_norm_rms_epsilon": True}, "True"),
        ({"rope__dimension_count": 8}, "8 elements of a head of 4"),
        ({"embedding_length": 3}, "attention.key_length is 0"),
        ({"rope__freq_base": 0.0}, "rope.freq_base is 0"),
        ({"rope__freq_base": float("nan")}, "nan"),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 0.0}, "rope.scaling.factor is 0"),
        ({"rope__dimension_count": 3}, "3 elements of a head of 4"),
    ],
)
def test_numbers_that_cannot_be_right_are_named(
    gguf_checkpoint: MakeCheckpoint, changes: dict[str, object], part: str
) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        read_model_spec(gguf_checkpoint(**changes))
    assert part in caught.value.message
