"""`WeightReader`: finds a model's tensors, checks them, and describes the modules that are built from them.

Matrices stay views of the file in their own storage; the small vectors (norms, biases) become float32
arrays. Every shape is checked against the `ModelSpec` here, so kernels may trust them.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.model.rope_tables import rope_tables
from ratoon.device.model.tensor_names import tensor_names
from ratoon.device.ops.dequantize import FORMATS, tensor_values
from ratoon.device.ops.protocol import AttentionWeights, FeedForwardWeights, Floats, LMHeadWeights, Ops, Rope
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.spec.model_spec import ModelSpec, RopeSpec


class WeightReader:
    """Reads one checkpoint for one `Ops`.

    Raises `UnsupportedModelError` for a storage that the ops cannot run, `CorruptCheckpointError` for a
    missing or misshapen tensor; both name it.
    """

    def __init__(self, checkpoint: Checkpoint, spec: ModelSpec, ops: Ops, *, num_positions: int) -> None:
        self._checkpoint = checkpoint
        self._spec = spec
        self._ops = ops
        self._names = tensor_names(checkpoint.format, checkpoint.architecture)
        self._tensor_names = frozenset(checkpoint.tensor_names())
        self._num_positions = num_positions
        self._ropes: dict[RopeSpec, Rope] = {}

    def embedding(self) -> RawTensor:
        """Return the token table."""
        return self._matrix(self._names.embedding, self._spec.vocab_size, self._spec.hidden_size)

    def head(self) -> LMHeadWeights:
        """Describe the final norm and the output projection, which may be the token table again."""
        spec, names = self._spec, self._names
        out = names.embedding if spec.tied_embeddings else names.head
        return LMHeadWeights(
            norm=self._norm(names.final_norm, spec.hidden_size) * np.float32(spec.logits_scale),
            out=self._matrix(out, spec.vocab_size, spec.hidden_size),
            eps=spec.norm_eps,
            softcap=spec.final_softcap,
        )

    def attention(self, layer: int, *, group: int, slot: int) -> AttentionWeights:
        """Describe a layer's attention module, whose KV lies in `slot` of the pages of a cache group."""
        spec, names, layer_spec = self._spec, self._names, self._spec.layers[layer]
        prefix = names.layer.format(layer)
        widths = [heads * spec.head_dim for heads in (spec.num_heads, spec.num_kv_heads, spec.num_kv_heads)]
        qkv = [(prefix + name, width) for name, width in zip(names.qkv, widths, strict=True)]
        biases = [self._vector(f"{name}.bias", width) for name, width in qkv] if spec.qkv_bias else None
        return AttentionWeights(
            norm=self._norm(prefix + names.attention_norm, spec.hidden_size),
            qkv=self._fused_or_not(prefix + names.fused_qkv, qkv),
            qkv_bias=None if biases is None else np.concatenate(biases),
            q_norm=self._norm(prefix + names.q_norm, spec.head_dim) if spec.qk_norm else None,
            k_norm=self._norm(prefix + names.k_norm, spec.head_dim) if spec.qk_norm else None,
            out=self._matrix(prefix + names.attention_out, spec.hidden_size, widths[0]),
            post_norm=self._post_norm(prefix + names.attention_post_norm),
            eps=spec.norm_eps,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            scale=spec.attention_scale,
            softcap=spec.attention_softcap,
            window=layer_spec.window,
            rope=self._rope(layer_spec.rope),
            group=group,
            slot=slot,
            layer=layer,
        )

    def feed_forward(self, layer: int) -> FeedForwardWeights:
        """Describe a layer's feed-forward module."""
        spec, names = self._spec, self._names
        prefix = names.layer.format(layer)
        parts = [(prefix + name, spec.intermediate_size) for name in (names.gate, names.up)]
        gate, up = self._fused_or_not(prefix + names.fused_gate_up, parts)
        return FeedForwardWeights(
            norm=self._norm(prefix + names.feed_forward_norm, spec.hidden_size),
            gate=gate,
            up=up,
            down=self._matrix(prefix + names.down, spec.hidden_size, spec.intermediate_size),
            post_norm=self._post_norm(prefix + names.feed_forward_post_norm),
            eps=spec.norm_eps,
            activation=spec.activation,
            layer=layer,
        )

    def _fused_or_not(self, fused: str, parts: Sequence[tuple[str, int]]) -> tuple[RawTensor, ...]:
        """Return matrices by name and number of rows, which may lie one after the other in one tensor."""
        if f"{fused}.weight" not in self._tensor_names or f"{parts[0][0]}.weight" in self._tensor_names:
            return tuple(self._matrix(name, width, self._spec.hidden_size) for name, width in parts)
        ends = list(accumulate(width for _, width in parts))
        whole = self._matrix(fused, ends[-1], self._spec.hidden_size)
        return tuple(whole.part(end - width, end) for end, (_, width) in zip(ends, parts, strict=True))

    def _matrix(self, name: str, *shape: int) -> RawTensor:
        tensor = self._tensor(f"{name}.weight", shape)
        if not self._ops.supports(tensor.dtype):
            raise UnsupportedModelError(
                f"Tensor {tensor.name} is stored as {tensor.dtype}, which {self._ops.name} ops cannot run.",
                hint="Use a file of this model in another quantisation.",
            )
        return tensor

    def _norm(self, name: str, size: int) -> Floats:
        return self._vector(f"{name}.weight", size) + np.float32(self._names.norm_offset)

    def _post_norm(self, name: str) -> Floats | None:
        return self._norm(name, self._spec.hidden_size) if self._spec.post_norms else None

    def _vector(self, name: str, size: int) -> Floats:
        tensor = self._tensor(name, (size,))
        if tensor.dtype not in FORMATS:
            raise UnsupportedModelError(
                f"Tensor {name} is stored as {tensor.dtype}, which Ratoon cannot read."
            )
        return tensor_values(tensor)

    def _tensor(self, name: str, shape: tuple[int, ...]) -> RawTensor:
        tensor = self._checkpoint.tensor(name)
        if tensor.shape != shape:
            raise CorruptCheckpointError(
                f"Tensor {name} has shape {list(tensor.shape)}, but the model asks for {list(shape)}."
            )
        return tensor

    def _rope(self, spec: RopeSpec) -> Rope:
        """Return the tables of this embedding; layers with equal settings share them."""
        if spec not in self._ropes:
            self._ropes[spec] = rope_tables(spec, self._num_positions)
        return self._ropes[spec]
