"""`CacheGroup`: which blocks the layers of one group still need, and how long a hit they allow."""

from collections.abc import Sequence

from ratoon.spec.cache_group import CacheGroupSpec


class CacheGroup:
    """A `CacheGroupSpec` counted in blocks. Stateless."""

    __slots__ = ("_block_size", "window")

    def __init__(self, spec: CacheGroupSpec, block_size: int) -> None:
        self.window = spec.window
        self._block_size = block_size

    def first_needed(self, position: int) -> int:
        """Return the logical number of the first block that the query at `position` sees."""
        return 0 if self.window is None else max(0, position - self.window + 1) // self._block_size

    def longest_hit(self, found: Sequence[int], num_blocks: int, num_tokens: int) -> int:
        """Return the greatest length, at most `num_blocks`, at which this group allows a hit.

        `found[i]` is a block that holds logical block i, 0 where there is none. A hit of some length is
        allowed if every block that the first query after it sees is there; after a hit on all `num_tokens`
        that is the last token.
        """
        if self.window is None:
            try:
                return found.index(0, 0, num_blocks)
            except ValueError:
                return num_blocks
        length = num_blocks
        needed = self.first_needed(min(length * self._block_size, num_tokens - 1))
        i = length - 1
        while i >= needed:
            if not found[i]:  # every length from here to the present one needs this block
                length = i
                needed = self.first_needed(length * self._block_size)
            i -= 1
        return length

    def max_blocks(self, num_tokens: int, max_chunk: int) -> int:
        """Return how many blocks one request holds at most while it grows to `num_tokens`.

        `max_chunk` is the greatest number of tokens that it reserves ahead of what it has computed. A
        window needs the blocks of the W - 1 tokens before such a chunk and of the chunk, wherever these
        begin in a block.
        """
        size = self._block_size
        in_all = -(-num_tokens // size)
        if self.window is None:
            return in_all
        return min(in_all, (self.window + max_chunk + size - 3) // size + 1)
