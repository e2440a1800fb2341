"""What KV blocks cost and how many tokens they hold: one formula for sizing, admission and `inspect`.

    page bytes = 2 (K and V) x layers of a group x KV heads x block size x bytes of a vector
    vector     = head size x bytes of an element, and 4 for its scale where elements are integers
    blocks     = budget // page bytes, of which block 0 is the null block

A request of n tokens holds, in each group, ceil(n / block size) blocks. In a group with a window of W
tokens it holds no more than the last ceil(W / block size) full blocks, and those of a chunk after them,
which may begin anywhere within a block.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from ratoon.errors import InvalidParameterError
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.model_spec import ModelSpec
from ratoon.util.sizes import format_bytes

VECTOR_BYTES = {"int16": (2, 4), "f32": (4, 0)}
"""What a key or value takes, by storage: bytes of each element, bytes of all."""


@dataclass(frozen=True, slots=True)
class KVBudget:
    """A pool of `num_blocks` pages, null block included, for groups that share it."""

    groups: tuple[CacheGroupSpec, ...]
    block_size: int
    num_slots: int
    """Layers that a page has room for: those of the largest group."""
    page_bytes: int
    num_blocks: int

    @property
    def num_usable_blocks(self) -> int:
        """All but the null block."""
        return self.num_blocks - 1

    @property
    def num_tokens(self) -> int:
        """Tokens that the pool holds while every group keeps them."""
        return self.num_usable_blocks // len(self.groups) * self.block_size

    @property
    def bytes_per_token(self) -> int:
        """What a token costs while every group keeps it."""
        return self.page_bytes // self.block_size * len(self.groups)

    @property
    def bytes_per_token_beyond_windows(self) -> int:
        """What a sequence grows by per token once it is longer than every window."""
        return self.page_bytes // self.block_size * sum(group.window is None for group in self.groups)

    def max_tokens(self, limit: int, max_chunk: int | None = None) -> int:
        """Return how long a request can get here, `limit` at most; `max_chunk` is as in `blocks_for`."""
        return bisect_right(
            range(1, limit + 1),
            self.num_usable_blocks,
            key=lambda length: blocks_for(self.groups, self.block_size, length, max_chunk),
        )


def kv_budget(
    spec: ModelSpec, groups: Sequence[CacheGroupSpec], *, block_size: int, kv_dtype: str, kv_cache_bytes: int
) -> KVBudget:
    """Return the pool that a budget pays for.

    Raises `InvalidParameterError` where that is less than a block for each group: it could serve nothing.
    """
    num_slots = max(len(group.layers) for group in groups)
    element_bytes, scale_bytes = VECTOR_BYTES[kv_dtype]
    vector_bytes = spec.head_dim * element_bytes + scale_bytes
    page_bytes = 2 * num_slots * spec.num_kv_heads * block_size * vector_bytes
    num_blocks = kv_cache_bytes // page_bytes
    least = 1 + len(groups)
    if num_blocks < least:
        raise InvalidParameterError(
            f"{format_bytes(kv_cache_bytes)} of KV cache are not {least} blocks of {format_bytes(page_bytes)}"
            ": the null block, and one for each cache group.",
            hint="Raise --kv-cache-bytes or lower --block-size.",
        )
    return KVBudget(tuple(groups), block_size, num_slots, page_bytes, num_blocks)


def blocks_for(
    groups: Sequence[CacheGroupSpec], block_size: int, num_tokens: int, max_chunk: int | None = None
) -> int:
    """Return the most blocks, over all groups, that a request holds while it grows to `num_tokens`.

    `max_chunk` is the greatest number of tokens it reserves ahead of what it has computed; None
    reserves all at once.
    """
    whole = -(-num_tokens // block_size)
    chunk = num_tokens if max_chunk is None else min(max_chunk, num_tokens)
    # Before the chunk come the tokens of its first block, at most all but one.
    unfilled = -(-(block_size - 1 + chunk) // block_size)
    return sum(
        whole if group.window is None else min(whole, -(-group.window // block_size) + unfilled)
        for group in groups
    )
