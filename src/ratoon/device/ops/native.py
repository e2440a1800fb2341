"""`NativeOps`: the operations in C++, through the extension module `_native` (sources in `native/`).

This file turns the protocol's values into the module's arguments; shapes and bounds are checked there, once
per call, before any memory is touched. What cannot be true (a slot outside the pages, a table too short)
raises `ValueError`, an array of another type or order `TypeError`: both are bugs of the caller.
"""

import logging
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops import _native
from ratoon.device.ops.native_adapter import NativeAdapter, NativeAdapterRows, packed_bytes, packed_rows
from ratoon.device.ops.protocol import (
    AdapterRows,
    AdapterSpan,
    AdapterWeights,
    AttentionWeights,
    FeedForwardWeights,
    Floats,
    Ints,
    KVLayout,
    KVPages,
    Layer,
    LMHeadWeights,
    Rope,
    SharedBlocks,
    Step,
    StepInputs,
)
from ratoon.errors import InvalidParameterError, UnsupportedModelError

CACHE_LINE = 64
MAX_THREADS = 256

_log = logging.getLogger(__name__)


class NativePages:
    """The pool. What a page looks like inside is told in `native/kv_pages.hpp`."""

    def __init__(self, layout: KVLayout) -> None:
        num_bytes = layout.num_blocks * layout.page_bytes
        memory = np.zeros(num_bytes + CACHE_LINE, np.uint8)
        start = -memory.ctypes.data % CACHE_LINE
        self._layout = layout
        self._pages = memory[start : start + num_bytes].reshape(layout.num_blocks, layout.page_bytes)

    @property
    def layout(self) -> KVLayout:
        """What it was made for."""
        return self._layout

    @property
    def pages(self) -> NDArray[np.uint8]:
        """Return the memory itself, [num_blocks, page_bytes]."""
        return self._pages


class NativeAttention:
    """One layer's attention."""

    def __init__(self, module: _native.Attention) -> None:
        self.module = module

    def __call__(self, x: Floats, step: Step, adapters: AdapterRows | None = None) -> None:
        """Add the module's output to `x` [n, hidden] in place, writing K and V first."""
        assert isinstance(step, _native.Step), "a step of another implementation"
        self.module.run(x, step, packed_rows(adapters))


class NativeFeedForward:
    """One layer's feed-forward network."""

    def __init__(self, module: _native.FeedForward) -> None:
        self.module = module

    def __call__(self, x: Floats, adapters: AdapterRows | None = None) -> None:
        """Add the module's output to `x` [n, hidden] in place."""
        self.module.run(x, packed_rows(adapters))


class NativeLayers:
    """A model's layers: one call into C++, in which other Python threads can run."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        attention, feed_forward = [], []
        for layer in layers:
            assert isinstance(layer.attention, NativeAttention), "a module of another implementation"
            assert isinstance(layer.feed_forward, NativeFeedForward), "a module of another implementation"
            attention.append(layer.attention.module)
            feed_forward.append(layer.feed_forward.module)
        self._layers = _native.Layers(attention, feed_forward)

    def __call__(
        self, x: Floats, step: Step, rows: NDArray[np.intp], adapters: AdapterRows | None = None
    ) -> Floats:
        """Take `x` [n, hidden] through all layers; return the last output [m, hidden] of `rows`."""
        assert isinstance(step, _native.Step), "a step of another implementation"
        out = np.empty((len(rows), x.shape[1]), np.float32)
        self._layers.run(x, step, rows, out, packed_rows(adapters))
        return out


class NativeLMHead:
    """Final norm and output projection."""

    def __init__(self, module: _native.LMHead) -> None:
        self._module = module

    def __call__(self, x: Floats) -> tuple[Floats, Ints]:
        """Return logits [m, vocab] of the rows `x` [m, hidden], and where each row's highest stands."""
        logits, best = np.empty((len(x), self._module.columns), np.float32), np.empty(len(x), np.int32)
        self._module.run(x, logits, best)
        return logits, best


class NativeLinear:
    """A bare matrix product."""

    def __init__(self, module: _native.Linear) -> None:
        self._module = module

    def __call__(self, x: Floats) -> Floats:
        """Return x [n, in] times the transposed weight: [n, out]."""
        out = np.empty((len(x), self._module.columns), np.float32)
        self._module.run(x, out)
        return out


class NativeEmbedding:
    """The token table, which stays in its file: its rows are read as they are looked up."""

    def __init__(self, module: _native.Embedding, table: RawTensor) -> None:
        self._module = module
        self._table = table

    def __call__(self, token_ids: Ints) -> Floats:
        """Return new float32 [n, hidden] rows, scaled."""
        out = np.empty((len(token_ids), self._module.columns), np.float32)
        ids = token_ids.tolist()
        for worst in (min(ids, default=0), max(ids, default=0)):
            if not 0 <= worst < self._table.shape[0]:
                raise ValueError(f"token id {worst} is not in the vocabulary")
        self._module.run(np.frombuffer(self._table.rows(ids), np.uint8), out)
        return out


class NativeOps:
    """`Ops` in C++. `num_threads` threads compute, the calling one included.

    Where they are as many as the cores and `keeps_to_cores`, each but the calling one keeps to its own core.
    `isa` forces a variant of the kernels, one of `available_variants()` or `emulated_variants()`; the default
    is `best_variant()`.
    """

    def __init__(self, num_threads: int, isa: str | None = None, *, keeps_to_cores: bool = True) -> None:
        variants = available_variants()
        self._isa = best_variant() if isa is None else isa
        if self._isa not in (*variants, *emulated_variants()):
            raise InvalidParameterError(
                f"this processor does not run {self._isa} kernels", hint=f"It runs {', '.join(variants)}."
            )
        if not 1 <= num_threads <= MAX_THREADS:
            raise InvalidParameterError(f"the number of threads must be from 1 to {MAX_THREADS}")
        self._engine = _native.Engine(num_threads, self._isa, keeps_to_cores)
        self._ropes: dict[int, tuple[Rope, _native.Rope]] = {}

    @property
    def name(self) -> str:
        """What runs, for people."""
        threads = self._engine.num_threads
        return f"native ({self._isa}, {threads} thread{'s' if threads > 1 else ''})"

    @property
    def numerics(self) -> str:
        """Version of the arithmetic: the variants for x86 give the same bits, portable kernels others."""
        return "native-3-portable" if self._isa == "portable" else "native-3"

    def supports(self, dtype: str) -> bool:
        """Whether linear weights of this storage can be packed."""
        return _native.supports(dtype)

    def linear(self, tensors: Sequence[RawTensor]) -> NativeLinear:
        """Pack weights whose rows are the tensors' rows one after the other."""
        return NativeLinear(_native.Linear(self._engine, [self._pack(tensor) for tensor in tensors]))

    def embedding(self, tensor: RawTensor, scale: float) -> NativeEmbedding:
        """Make a token table."""
        _, columns = self._check(tensor)
        return NativeEmbedding(_native.Embedding(self._engine, tensor.dtype, columns, scale), tensor)

    def attention(self, weights: AttentionWeights, pages: KVPages) -> NativeAttention:
        """Build one attention module over a pool."""
        w, layout = weights, pages.layout
        module = _native.Attention(
            engine=self._engine,
            norm=w.norm,
            qkv=[self._pack(tensor, unit=w.head_dim) for tensor in w.qkv],
            bias=w.qkv_bias,
            q_norm=w.q_norm,
            k_norm=w.k_norm,
            out=self._pack(w.out),
            post_norm=w.post_norm,
            eps=w.eps,
            num_heads=w.num_heads,
            num_kv_heads=w.num_kv_heads,
            head_dim=w.head_dim,
            scale=w.scale,
            softcap=w.softcap,
            window=w.window or 0,
            rope=self._rope(w.rope),
            group=w.group,
            slot=w.slot,
            layer=w.layer,
            pages=pages.pages,
            block_size=layout.block_size,
            num_slots=layout.num_slots,
            integers=layout.dtype == "int16",
        )
        return NativeAttention(module)

    def feed_forward(self, weights: FeedForwardWeights) -> NativeFeedForward:
        """Build one feed-forward module."""
        module = _native.FeedForward(
            engine=self._engine,
            norm=weights.norm,
            gate=self._pack(weights.gate),
            up=self._pack(weights.up),
            down=self._pack(weights.down),
            post_norm=weights.post_norm,
            eps=weights.eps,
            activation=weights.activation,
            layer=weights.layer,
        )
        return NativeFeedForward(module)

    def layers(self, layers: Sequence[Layer]) -> NativeLayers:
        """Join layers."""
        return NativeLayers(layers)

    def lm_head(self, weights: LMHeadWeights) -> NativeLMHead:
        """Build the output projection."""
        module = _native.LMHead(
            engine=self._engine,
            norm=weights.norm,
            out=self._pack(weights.out),
            eps=weights.eps,
            softcap=weights.softcap,
        )
        return NativeLMHead(module)

    def adapter_bytes(self, weights: AdapterWeights) -> int:
        """Return how much memory the adapter will take."""
        return packed_bytes(weights)

    def adapter(self, weights: AdapterWeights) -> NativeAdapter:
        """Pack an adapter; the engine is not used for it, so that a step may run meanwhile."""
        return NativeAdapter(weights)

    def adapter_rows(self, num_rows: int, spans: Sequence[AdapterSpan]) -> NativeAdapterRows:
        """Take the adapters of a step's rows."""
        return NativeAdapterRows(num_rows, spans)

    def pages(self, layout: KVLayout) -> NativePages:
        """Allocate a pool, zeroed lazily by the operating system."""
        return NativePages(layout)

    def begin(self, inputs: StepInputs) -> _native.Step:
        """Take a step's inputs, once for all layers."""
        return _native.Step(
            inputs.positions, inputs.cu_seqlens, list(inputs.block_tables), list(inputs.slot_mapping)
        )

    def shared_blocks(self, step: Step) -> list[SharedBlocks]:
        """Return which sequences read blocks together, once every layer has run."""
        assert isinstance(step, _native.Step), "a step of another implementation"
        return [SharedBlocks(*shared) for shared in step.shared_blocks()]

    def _check(self, tensor: RawTensor) -> tuple[int, int]:
        if not self.supports(tensor.dtype):
            raise UnsupportedModelError(
                f"tensor {tensor.name} is stored as {tensor.dtype}, which has no kernels"
            )
        rows, columns = tensor.shape
        return rows, columns

    def _pack(self, tensor: RawTensor, unit: int | None = None) -> _native.Matrix:
        """Pack one tensor; with `unit`, panels start afresh every so many rows (at each head)."""
        rows, columns = self._check(tensor)
        data = np.frombuffer(tensor.data, np.uint8)
        return _native.pack(self._engine, data, tensor.dtype, rows, columns, unit or rows)

    def _rope(self, rope: Rope) -> _native.Rope:
        """Hand over a pair of tables once, however many layers use it."""
        if id(rope) not in self._ropes:
            self._ropes[id(rope)] = rope, _native.Rope(rope.cos, rope.sin, rope.interleaved)
        return self._ropes[id(rope)][1]


def available_variants() -> list[str]:
    """Return the kernel variants that this processor runs, best first."""
    return _native.available_variants()


def emulated_variants() -> list[str]:
    """Return variants that do in software what this processor lacks: slow, for tests."""
    return _native.emulated_variants()


@cache
def best_variant() -> str:
    """Return the first variant that computes the bits it should.

    Each is tried once, on a computation of a few milliseconds: where a processor, a hypervisor or a compiler
    gets an instruction wrong, wrong KV would be cached and shared. Portable kernels are plain C++ and pass.
    """
    variants = available_variants()
    chosen = next(variant for variant in variants if _native.passes_self_test(variant))
    if wrong := variants[: variants.index(chosen)]:
        _log.warning(
            "The %s kernels compute wrong results on this machine; %s kernels are used.",
            " and ".join(wrong), chosen,
        )  # fmt: skip
    return chosen
