"""`Siblings`: blocks that follow the same prefix, sorted by their tokens to find the nearest one."""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator

_NEAR = 8
"""Equally near siblings that are looked at, to prefer one that is still stored."""

Entry = tuple[bytes, bytes]
"""A block's tokens, in an order of bytes that sorts as the tokens do, and its hash."""


class Siblings:
    """In sorted order, those with the longest common prefix stand beside the place of what is looked for."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[Entry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, block_tokens: bytes, block_hash: bytes) -> None:
        """Enter a block that is not there yet."""
        insort(self._entries, (_sortable(block_tokens), block_hash))

    def remove(self, block_tokens: bytes, block_hash: bytes) -> None:
        """Take a block out."""
        place = bisect_left(self._entries, (_sortable(block_tokens), block_hash))
        assert self._entries[place][1] == block_hash, "only what was added is removed"
        del self._entries[place]

    def nearest(self, block_tokens: bytes) -> tuple[int, list[bytes]]:
        """Return the longest common prefix in tokens, and the hashes of (some of) the blocks that have it."""
        wanted = _sortable(block_tokens)
        place = bisect_left(self._entries, (wanted, b""))
        best = 0
        hashes: list[bytes] = []
        for entries in (self._after(place), self._before(place)):
            for tokens, block_hash in entries:
                common = num_common(wanted, tokens)
                if common < best:
                    break
                if common > best:
                    best, hashes = common, []
                hashes.append(block_hash)
        return best, hashes

    def _after(self, place: int) -> Iterator[Entry]:
        yield from self._entries[place : place + _NEAR]

    def _before(self, place: int) -> Iterator[Entry]:
        yield from reversed(self._entries[max(0, place - _NEAR) : place])


def num_common(first: bytes, second: bytes) -> int:
    """Return how many tokens two strings of 4-byte tokens begin with in common."""
    if first == second:
        return len(first) // 4
    return next(
        (i // 4 for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)) // 4,
    )


def _sortable(block_tokens: bytes) -> bytes:
    """Return little-endian tokens as big-endian ones, whose bytes sort as the numbers do."""
    tokens = array("I", block_tokens)
    tokens.byteswap()
    return tokens.tobytes()
