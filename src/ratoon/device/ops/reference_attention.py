"""Paged attention in NumPy float32.

A module writes the K and V of all its rows first, then attends each sequence by itself. The context is
walked in spans of `SPAN` positions counted from 0, merged in order, so that a query's result depends on its
own position alone. K and V always come back from the pages, so that what was just computed and what was
cached read the same.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratoon.device.ops.dequantize import tensor_values
from ratoon.device.ops.protocol import (
    AdapterRows,
    AttentionWeights,
    Floats,
    Ints,
    KVLayout,
    KVPages,
    Step,
    StepInputs,
)
from ratoon.device.ops.reference_adapter import ReferenceAdapterRows, reference_rows
from ratoon.device.ops.reference_functions import Product, rms_norm, rotate, softcap, tile_width

SPAN = 256
"""Positions of context that one pass of the softmax covers."""


LARGEST = np.float32(32767)
"""What the length of a key, or the largest element of a value, becomes where they are stored as integers."""
LEAST = np.float32(1e-30)
"""Sizes below it count as 0."""


Places = tuple[NDArray[np.int64], ...]


def store_vectors(vectors: Floats, sizes: Floats, stored: NDArray[Any], at: Places) -> None:
    """Store `vectors` [..., dim]; where as integers, such that `sizes` [...] become `LARGEST`.

    What is not finite becomes a vector of NaN, and so does every row that reads it.
    """
    if stored.dtype.names == ("elements",):
        stored["elements"][at] = vectors
        return
    usable = np.isfinite(sizes) & (sizes >= LEAST)
    safe = np.where(usable, sizes, LARGEST)
    integers = np.where(usable[..., None], vectors, 0) * (LARGEST / safe)[..., None]
    stored["elements"][at] = np.rint(integers)
    scales = [safe / LARGEST, np.zeros_like(safe)]
    stored["scale"][at] = np.select([usable, np.isfinite(sizes)], scales, np.float32(np.nan))


def load_vectors(stored: NDArray[Any]) -> Floats:
    """Return what `store_vectors` stored: [..., dim]."""
    elements: Floats = stored["elements"]
    return elements if stored.dtype.names == ("elements",) else elements * stored["scale"][..., None]


class ReferencePages:
    """The pool; a page is [slot, K or V, offset, KV head] of vectors."""

    def __init__(self, layout: KVLayout) -> None:
        self._layout = layout
        self._pages = np.zeros((layout.num_blocks, layout.page_bytes), np.uint8)

    @property
    def layout(self) -> KVLayout:
        """What it was made for."""
        return self._layout

    @property
    def pages(self) -> NDArray[np.uint8]:
        """Return the memory itself, [num_blocks, page_bytes]."""
        return self._pages

    def slot(self, slot: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """View one layer's keys and values, each [num_blocks, block_size, num_kv_heads] of vectors."""
        layout = self._layout
        if layout.dtype == "int16":
            vector = np.dtype([("elements", np.int16, (layout.head_dim,)), ("scale", np.float32)])
        else:
            vector = np.dtype([("elements", np.float32, (layout.head_dim,))])
        page = (layout.num_slots, 2, layout.block_size, layout.num_kv_heads)
        layers = self._pages.view(vector).reshape(layout.num_blocks, *page)
        return layers[:, slot, 0], layers[:, slot, 1]


class ReferenceAttention:
    """One layer's attention."""

    def __init__(self, weights: AttentionWeights, pages: KVPages) -> None:
        assert isinstance(pages, ReferencePages), "pages of another implementation"
        self._w = weights
        self._block_size = pages.layout.block_size
        self._keys, self._values = pages.slot(weights.slot)
        self._qkv = Product(np.concatenate([tensor_values(tensor) for tensor in weights.qkv]))
        self._out = Product(tensor_values(weights.out))
        span = np.random.default_rng(0).standard_normal((SPAN, weights.head_dim), dtype=np.float32)
        self._tile = min(tile_width(span), tile_width(span.T))

    def __call__(self, x: Floats, step: Step, adapters: AdapterRows | None = None) -> None:
        """Add the module's output to `x` [n, hidden] in place, writing K and V first."""
        assert isinstance(step, StepInputs)
        w, rows = self._w, reference_rows(adapters)
        context = self._attend(self._store(x, step, rows), step)
        out = self._out(context)
        rows.add(out, context, w.layer, "out")
        x += out if w.post_norm is None else rms_norm(out, w.post_norm, w.eps)

    def _store(self, x: Floats, step: StepInputs, rows: ReferenceAdapterRows) -> Floats:
        """Write K and V; return the queries [n, heads, dim]."""
        w = self._w
        h = rms_norm(x, w.norm, w.eps)
        qkv = self._qkv(h)
        ends = np.array([w.num_heads, w.num_heads + w.num_kv_heads]) * w.head_dim
        for target, part in zip("qkv", np.split(qkv, ends, axis=1), strict=True):
            rows.add(part, h, w.layer, target)
        if w.qkv_bias is not None:
            qkv += w.qkv_bias
        heads = qkv.reshape(len(x), -1, w.head_dim)
        q, k, v = np.split(heads, [w.num_heads, w.num_heads + w.num_kv_heads], axis=1)
        if w.q_norm is not None:
            q = rms_norm(q, w.q_norm, w.eps)
        if w.k_norm is not None:
            k = rms_norm(k, w.k_norm, w.eps)
        self._write(rotate(k, step.positions, w.rope), v, step.slot_mapping[w.group])
        return rotate(q, step.positions, w.rope)

    def _write(self, k: Floats, v: Floats, slots: NDArray[np.int64]) -> None:
        kept = slots >= 0
        at = np.divmod(slots[kept], self._block_size)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt((k[kept] * k[kept]).sum(-1))
            store_vectors(k[kept], lengths, self._keys, at)
            store_vectors(v[kept], np.abs(v[kept]).max(-1), self._values, at)

    def _attend(self, q: Floats, step: StepInputs) -> Floats:
        """Attend each sequence's queries [n, heads, dim] to its own context: [n, heads * dim]."""
        context = np.empty((len(q), q.shape[1] * q.shape[2]), np.float32)
        for i, table in enumerate(step.block_tables[self._w.group]):
            rows = slice(step.cu_seqlens[i], step.cu_seqlens[i + 1])
            context[rows] = self._attend_sequence(q[rows], step.positions[rows], table)
        return context

    def _attend_sequence(self, q: Floats, positions: Ints, table: Ints) -> Floats:
        """Online softmax over spans (arXiv:1805.02867); queries are [kv_heads, group, tiles, dim, tile]."""
        w, num_rows = self._w, len(q)
        padding = -num_rows % self._tile
        places = np.pad(positions, (0, padding), mode="edge").reshape(-1, 1, self._tile)
        q = np.pad(q * np.float32(w.scale), ((0, padding), (0, 0), (0, 0)))
        q = q.reshape(-1, self._tile, w.num_kv_heads, w.num_heads // w.num_kv_heads, w.head_dim)
        queries = np.ascontiguousarray(q.transpose(2, 3, 0, 4, 1))
        best = np.full_like(queries[..., :1, :], -np.inf)
        total = np.zeros_like(best)
        mixed = np.zeros_like(queries)
        first, last = int(positions[0]), int(positions[-1])
        visible = 0 if w.window is None else max(0, first - w.window + 1)
        for start in range(visible // SPAN * SPAN, last + 1, SPAN):
            since = int(np.searchsorted(places[:, 0, -1], start))  # tiles before it end before the span
            seeing = np.s_[:, :, since:]
            keys, values = self._read_span(table, start, last)
            scores = self._scores(queries[seeing], keys, places[since:], start)
            top = np.maximum(best[seeing], scores.max(axis=-2, keepdims=True))
            # Where a query's window begins after the span it has seen nothing yet: weights of 0, not NaN.
            origin = np.where(np.isneginf(top), np.float32(0), top)
            weights, decay = np.exp(scores - origin), np.exp(best[seeing] - origin)
            total[seeing] = total[seeing] * decay + weights.sum(axis=-2, keepdims=True)
            mixed[seeing] = mixed[seeing] * decay + values.swapaxes(-1, -2) @ weights
            best[seeing] = top
        mixed /= total
        return mixed.transpose(2, 4, 0, 1, 3).reshape(num_rows + padding, -1)[:num_rows]

    def _scores(self, queries: Floats, keys: Floats, places: Ints, start: int) -> Floats:
        """Return [kv_heads, group, tiles, SPAN, tile], minus infinity where a query may not look."""
        scores = softcap(keys @ queries, self._w.softcap)
        distance = places - np.arange(start, start + SPAN)[:, None]
        hidden = distance < 0
        if self._w.window is not None:
            hidden |= distance >= self._w.window
        return np.where(hidden, np.float32(-np.inf), scores)

    def _read_span(self, table: Ints, start: int, last: int) -> tuple[Floats, Floats]:
        """Gather keys and values, each [kv_heads, 1, 1, SPAN, dim], zero after position `last`."""
        blocks, offsets = np.divmod(np.arange(start, min(start + SPAN, last + 1)), self._block_size)
        span = np.zeros((2, SPAN, self._w.num_kv_heads, self._w.head_dim), np.float32)
        span[0, : len(blocks)] = load_vectors(self._keys[table[blocks], offsets])
        span[1, : len(blocks)] = load_vectors(self._values[table[blocks], offsets])
        keys, values = np.ascontiguousarray(span.transpose(0, 2, 1, 3))[:, :, None, None]
        return keys, values
