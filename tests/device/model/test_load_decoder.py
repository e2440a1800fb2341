from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.checkpoint.formats import open_checkpoint
from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.model.load_decoder import load_decoder
from ratoon.device.ops.protocol import AttentionWeights, FeedForwardWeights, KVLayout, KVPages, LMHeadWeights
from ratoon.device.ops.reference import ReferenceOps
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import ModelSpec

GROUPS = (CacheGroupSpec(None, (0,)), CacheGroupSpec(8, (1,)))


class RecordingOps(ReferenceOps):
    """Notes what it is given, in order."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.built: list[Any] = []

    def supports(self, dtype: str) -> bool:
        return dtype != self.refused

    def embedding(self, tensor: RawTensor, scale: float) -> Any:
        self.built.append(tensor)
        return super().embedding(tensor, scale)

    def attention(self, weights: AttentionWeights, pages: KVPages) -> Any:
        self.built.append(weights)
        return super().attention(weights, pages)

    def feed_forward(self, weights: FeedForwardWeights) -> Any:
        self.built.append(weights)
        return super().feed_forward(weights)

    def lm_head(self, weights: LMHeadWeights) -> Any:
        self.built.append(weights)
        return super().lm_head(weights)


class Altered:
    """A checkpoint with some tensors changed."""

    def __init__(self, inner: Checkpoint, **tensors: RawTensor) -> None:
        self._inner = inner
        self._tensors = tensors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def tensor(self, name: str) -> RawTensor:
        return self._tensors.get(name) or self._inner.tensor(name)


@pytest.fixture
def tiny(tiny_llama: Path) -> tuple[Checkpoint, ModelSpec]:
    checkpoint = open_checkpoint(tiny_llama)
    return checkpoint, read_model_spec(checkpoint)


def _load(checkpoint: Any, spec: ModelSpec, ops: RecordingOps, **options: Any) -> None:
    pages = ops.pages(KVLayout(4, 16, 1, spec.num_kv_heads, spec.head_dim))
    load_decoder(checkpoint, spec, GROUPS, ops, pages, **options)


def test_layers_are_built_in_order_each_at_its_place_in_its_group(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    ops = RecordingOps()
    _load(*tiny, ops)
    first, second = (weights for weights in ops.built if isinstance(weights, AttentionWeights))
    assert (first.group, first.slot) == (0, 0)
    assert (second.group, second.slot) == (1, 0)
    assert [tensor.name for tensor in second.qkv] == [f"blk.1.attn_{part}.weight" for part in "qkv"]
    layer = [AttentionWeights, FeedForwardWeights]
    assert [type(built) for built in ops.built] == [*layer, *layer, RawTensor, LMHeadWeights]


def test_layers_with_equal_embeddings_share_their_tables(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    ops = RecordingOps()
    _load(*tiny, ops, num_positions=33)
    first, second = (weights for weights in ops.built if isinstance(weights, AttentionWeights))
    assert first.rope is second.rope
    assert first.rope.cos.shape == (33, 8)


def test_tied_embeddings_are_the_same_tensor_twice(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    ops = RecordingOps()
    _load(*tiny, ops)
    *_, table, head = ops.built
    assert head.out is table


def test_matrices_stay_in_the_file_until_they_are_packed(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    ops = RecordingOps()
    _load(*tiny, ops)
    assert ops.built[1].gate is tiny[0].tensor("blk.0.ffn_gate.weight")


def test_progress_counts_layers(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    seen: list[tuple[str, int, int]] = []
    _load(*tiny, RecordingOps(), progress=lambda *call: seen.append(call))
    assert seen == [("Loading weights", done, 2) for done in range(3)]


def test_a_storage_that_the_ops_lack_is_refused_by_name_before_anything_is_packed(
    tiny: tuple[Checkpoint, ModelSpec],
) -> None:
    checkpoint, spec = tiny
    name = "blk.1.ffn_down.weight"
    odd = Altered(checkpoint, **{name: replace(checkpoint.tensor(name), dtype="IQ4_NL")})
    ops = RecordingOps(refused="IQ4_NL")
    with pytest.raises(UnsupportedModelError, match=r"blk\.1\.ffn_down\.weight is stored as IQ4_NL"):
        _load(odd, spec, ops)
    assert not ops.built


def test_a_norm_in_an_unknown_storage_is_refused_by_name(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    checkpoint, spec = tiny
    odd = Altered(
        checkpoint, **{"output_norm.weight": replace(checkpoint.tensor("output_norm.weight"), dtype="F64")}
    )
    with pytest.raises(UnsupportedModelError, match=r"output_norm\.weight is stored as F64"):
        _load(odd, spec, RecordingOps())


def test_a_missing_tensor_is_named(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    checkpoint, spec = tiny
    with pytest.raises(CorruptCheckpointError, match=r"blk\.0\.attn_q_norm\.weight"):
        _load(checkpoint, replace(spec, qk_norm=True), RecordingOps())


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "blk.0.attn_k.weight", "blk.1.ffn_norm.weight", "blk.1.ffn_up.weight"]
)
def test_a_tensor_of_the_wrong_shape_is_named(name: str, tiny: tuple[Checkpoint, ModelSpec]) -> None:
    checkpoint, spec = tiny
    whole = checkpoint.tensor(name)
    shape = (whole.shape[0] - 1, *whole.shape[1:])
    short = replace(whole, shape=shape, source=whole.data[: 4 * int(np.prod(shape))])
    with pytest.raises(CorruptCheckpointError, match=name):
        _load(Altered(checkpoint, **{name: short}), spec, RecordingOps())


def test_every_layer_needs_a_group(tiny: tuple[Checkpoint, ModelSpec]) -> None:
    checkpoint, spec = tiny
    ops = RecordingOps()
    pages = ops.pages(KVLayout(4, 16, 1, spec.num_kv_heads, spec.head_dim))
    with pytest.raises(AssertionError):
        load_decoder(checkpoint, spec, GROUPS[:1], ops, pages)
