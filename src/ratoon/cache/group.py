"""`CacheGroup`: which blocks the layers of one group still need, and how long a hit they allow."""

from collections.abc import Sequence

from ratoon.spec.cache_group import CacheGroupSpec


class CacheGroup:
    """A `CacheGroupSpec` counted in blocks. Stateless."""

    __slots__ = ("_block_size", "_spec", "window")

    def __init__(self, spec: CacheGroupSpec, block_size: int) -> None:
        self.window = spec.window
        self._spec = spec
        self._block_size = block_size

    def first_needed(self, position: int) -> int:
        """Return the logical number of the first block that the query at `position` sees."""
        return self._spec.first_visible(position) // self._block_size

    def longest_hit(self, found: Sequence[int], num_blocks: int, num_tokens: int) -> int:
        """Return the greatest length, at most `num_blocks`, at which this group allows a hit.

        `found[i]` is a block that holds logical block i, 0 where there is none. A hit is allowed if its last
        block is there, which proves that it was computed, and all that the first query after it sees; after a
        hit on all `num_tokens` that query is the last token.
        """
        if self.window is None:
            try:
                return found.index(0, 0, num_blocks)
            except ValueError:
                return num_blocks
        length = num_blocks
        required = self._first_required(length, num_tokens)
        i = length - 1
        while i >= required:
            if not found[i]:  # every length from here to the present one requires this block
                length = i
                required = self._first_required(length, num_tokens)
            i -= 1
        return length

    def missing_block(self, found: Sequence[int], num_blocks: int, num_tokens: int) -> int:
        """Return the last block that is not found of those which a hit one block longer would need.

        There must be one: `num_blocks` is what this group allowed.
        """
        last = num_blocks
        while found[last]:
            last -= 1
        assert last >= self._first_required(num_blocks + 1, num_tokens), "the group allows a longer hit"
        return last

    def first_required(self, num_blocks: int, num_cached: int) -> int:
        """Return the first block that a hit on `num_blocks` needs whose next query is at `num_cached`."""
        return max(0, min(self.first_needed(num_cached), num_blocks - 1))

    def _first_required(self, length: int, num_tokens: int) -> int:
        return self.first_required(length, min(length * self._block_size, num_tokens - 1))
