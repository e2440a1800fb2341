"""`Ops`: the arithmetic that the decoder is written in; `reference` (NumPy) and `native` (C++) implement it.

The seam lies at whole modules (attention, feed-forward), so that an implementation may fuse what happens
inside, and at layers, so that a step costs a few calls. Weights are handed over once, when a module is built;
a step's tables once, by `begin`. Row rule: a row of every result depends on that row's own inputs alone,
through a fixed order of operations; not on the other rows, their number, the number of threads, nor where a
chunk was cut.

One thread at a time may call an `Ops` object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to a linear weight: its `scale` times b [out, rank] times a [rank, in]."""

    a: RawTensor
    b: RawTensor


ADAPTER_TARGETS = ("q", "k", "v", "out", "gate", "up", "down")
"""The weights of a layer that an adapter may change."""


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """A LoRA adapter (arXiv:2106.09685).

    `layers` has each layer's pairs by target; a and b are stored as floats of some kind.
    """

    layers: tuple[Mapping[str, LowRank], ...]
    scale: float
    head_dim: int


class Adapter(Protocol):
    """An adapter as the implementation keeps it; its memory goes with it."""


class AdapterRows(Protocol):
    """Which rows go through which adapter, as the implementation keeps it."""


@dataclass(frozen=True, slots=True)
class AdapterSpan:
    """Rows `first` to `end` go through `adapter`."""

    first: int
    end: int
    adapter: Adapter


@dataclass(frozen=True, slots=True)
class StepInputs:
    """Where the rows of one step stand. n rows (tokens) of s sequences, g cache groups.

    `positions` int32 [n]. Sequence i has rows `cu_seqlens[i]:cu_seqlens[i + 1]` (int32 [s + 1]), at
    consecutive positions.
    `block_tables[group]` int32 [s, width]: block ids in logical order, padded with 0; entries behind a
    window may be 0. `slot_mapping[group]` int64 [n]: block id * block size + offset where the row's K and V
    go; -1 writes nothing.
    `adapters` has each sequence's adapter, or None; it may be empty where none has one.
    """

    positions: Ints
    cu_seqlens: Ints
    block_tables: tuple[Ints, ...]
    slot_mapping: tuple[NDArray[np.int64], ...]
    adapters: tuple[Adapter | None, ...] = ()


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The pool: `num_blocks` pages, each a block of `block_size` positions over a group's `num_slots` layers.

    As `int16`, a key or value is a vector of integers and one float32, its scale. A page holds, slot after
    slot, K and V of all KV heads. The order inside is the implementation's own.
    """

    num_blocks: int
    block_size: int
    num_slots: int
    num_kv_heads: int
    head_dim: int
    dtype: str = "int16"  # or "f32"

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        vector_bytes = 2 * self.head_dim + 4 if self.dtype == "int16" else 4 * self.head_dim
        return 2 * self.num_slots * self.num_kv_heads * self.block_size * vector_bytes


class KVPages(Protocol):
    """The pool's memory. Page 0 belongs to the null block and is never read."""

    @property
    def layout(self) -> KVLayout:
        """What it was made for."""
        ...

    @property
    def pages(self) -> NDArray[np.uint8]:
        """Return the memory itself, [num_blocks, page_bytes]; a block is copied, saved or sent as one row."""
        ...


class Step(Protocol):
    """A step's inputs as the implementation keeps them."""


class SharedBlocks(NamedTuple):
    """`num_blocks` blocks of a cache group that two or more `sequences` of a step read once for all.

    Sequences are numbered in the step's order.
    """

    group: int
    sequences: Sequence[int]
    num_blocks: int


@dataclass(frozen=True, slots=True)
class Rope:
    """Tables of one rotary embedding: cos and sin float32 [max_context, dim / 2]."""

    cos: Floats
    sin: Floats
    interleaved: bool


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Everything of one attention module. The rows of `qkv` are q heads, then k heads, then v heads."""

    norm: Floats
    qkv: tuple[RawTensor, ...]
    qkv_bias: Floats | None
    q_norm: Floats | None
    k_norm: Floats | None
    out: RawTensor
    post_norm: Floats | None
    eps: float
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    softcap: float
    window: int | None
    rope: Rope
    group: int
    slot: int
    layer: int = 0


@dataclass(frozen=True, slots=True)
class FeedForwardWeights:
    """Everything of one feed-forward module: x += [post_norm] down(act(gate(h)) * up(h)), h = norm(x)."""

    norm: Floats
    gate: RawTensor
    up: RawTensor
    down: RawTensor
    post_norm: Floats | None
    eps: float
    activation: str
    layer: int = 0


@dataclass(frozen=True, slots=True)
class LMHeadWeights:
    """Final norm and output projection, with an optional soft cap (0 is off)."""

    norm: Floats
    out: RawTensor
    eps: float
    softcap: float


class AttentionModule(Protocol):
    """One layer's attention."""

    def __call__(self, x: Floats, step: Step, adapters: AdapterRows | None = None) -> None:
        """Add the module's output to `x` [n, hidden] in place, writing K and V first."""
        ...


class FeedForwardModule(Protocol):
    """One layer's feed-forward network."""

    def __call__(self, x: Floats, adapters: AdapterRows | None = None) -> None:
        """Add the module's output to `x` [n, hidden] in place."""
        ...


@dataclass(frozen=True, slots=True)
class Layer:
    """The two modules of one layer."""

    attention: AttentionModule
    feed_forward: FeedForwardModule


class Layers(Protocol):
    """The layers of a model."""

    def __call__(
        self, x: Floats, step: Step, rows: NDArray[np.intp], adapters: AdapterRows | None = None
    ) -> Floats:
        """Take `x` [n, hidden] through all layers in order; return the last output [m, hidden] of `rows`.

        K and V of all rows are written. Whether the last layer computes anything else for the others is up to
        the implementation, and so is what becomes of `x`.
        """
        ...


class LMHead(Protocol):
    """The output projection (LM head)."""

    def __call__(self, x: Floats) -> tuple[Floats, Ints]:
        """Return logits [m, vocab] of the rows `x` [m, hidden], and where each row's highest stands.

        Those are int32 [m], as NumPy's argmax has it: the first of equals, and the first NaN if there is one.
        """
        ...


class Embedding(Protocol):
    """The token table."""

    def __call__(self, token_ids: Ints) -> Floats:
        """Return float32 [n, hidden] rows, scaled. Freshly allocated; the decoder works on it in place."""
        ...


class Linear(Protocol):
    """A bare matrix product, for tests and for projections outside the modules."""

    def __call__(self, x: Floats) -> Floats:
        """Return x [n, in] times the transposed weight: [n, out]."""
        ...


class Ops(Protocol):
    """A family of kernels."""

    @property
    def name(self) -> str:
        """What runs, for people: `reference`, `native (AVX2, 2 threads)`."""
        ...

    @property
    def numerics(self) -> str:
        """Version of the arithmetic, part of the model fingerprint: under another one KV has other bits."""
        ...

    def supports(self, dtype: str) -> bool:
        """Whether linear weights of this storage can be packed."""
        ...

    def linear(self, tensors: Sequence[RawTensor]) -> Linear:
        """Pack weights whose rows are the tensors' rows one after the other."""
        ...

    def embedding(self, tensor: RawTensor, scale: float) -> Embedding:
        """Make a token table; rows are expanded as they are looked up."""
        ...

    def attention(self, weights: AttentionWeights, pages: KVPages) -> AttentionModule:
        """Build one attention module over a pool."""
        ...

    def feed_forward(self, weights: FeedForwardWeights) -> FeedForwardModule:
        """Build one feed-forward module."""
        ...

    def layers(self, layers: Sequence[Layer]) -> Layers:
        """Join a model's layers, built by these ops: a step passes through all of them in one call."""
        ...

    def lm_head(self, weights: LMHeadWeights) -> LMHead:
        """Build the output projection."""
        ...

    def adapter_bytes(self, weights: AdapterWeights) -> int:
        """Return how much memory the adapter will take."""
        ...

    def adapter(self, weights: AdapterWeights) -> Adapter:
        """Pack an adapter for modules of these ops; may be called from any thread, even during a step."""
        ...

    def adapter_rows(self, num_rows: int, spans: Sequence[AdapterSpan]) -> AdapterRows:
        """Take the adapters of a step's rows: spans in order, without overlap; the rows between have none."""
        ...

    def pages(self, layout: KVLayout) -> KVPages:
        """Allocate a pool, zeroed lazily by the operating system."""
        ...

    def begin(self, inputs: StepInputs) -> Step:
        """Take a step's inputs, once for all layers."""
        ...

    def shared_blocks(self, step: Step) -> Sequence[SharedBlocks]:
        """Return which sequences read blocks together, once every layer has run."""
        ...
