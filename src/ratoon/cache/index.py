"""`BlockIndex`: from block hash to the blocks that hold it, for one cache group.

The group and the hash together are the key; each group has its own index. A key usually has one block, so
the first block of every key lies in one flat dictionary and only the rare further ones in another.
"""

from collections.abc import Iterator, Sequence


class BlockIndex:
    """`first[block_hash]` is the block that a match uses; duplicates step up in order of age when it goes."""

    __slots__ = ("_others", "first")

    def __init__(self) -> None:
        self.first: dict[bytes, int] = {}
        self._others: dict[bytes, list[int]] = {}

    def add(self, block_hashes: Sequence[bytes], block_ids: Sequence[int]) -> None:
        """Enter blocks under their keys."""
        first = self.first
        if first.keys().isdisjoint(block_hashes):
            num_keys = len(first) + len(block_hashes)
            first.update(zip(block_hashes, block_ids, strict=True))
            if len(first) == num_keys:
                return
            for block_hash in set(block_hashes):  # some are equal, and the oldest comes first
                del first[block_hash]
        for block_hash, block_id in zip(block_hashes, block_ids, strict=True):
            if first.setdefault(block_hash, block_id) != block_id:
                self._others.setdefault(block_hash, []).append(block_id)

    def remove(self, block_hashes: Sequence[bytes], block_ids: Sequence[int]) -> None:
        """Take blocks out; a key stays while another block has it."""
        if not self._others:
            found = list(map(self.first.pop, block_hashes))
            assert found == list(block_ids), "a block is not under its key"
            return
        for block_hash, block_id in zip(block_hashes, block_ids, strict=True):
            self._remove(block_hash, block_id)

    def block_ids(self, block_hash: bytes) -> tuple[int, ...]:
        """Return all blocks of a key, the one a match uses first; empty for an unknown key."""
        first = self.first.get(block_hash)
        return () if first is None else (first, *self._others.get(block_hash, ()))

    def _remove(self, block_hash: bytes, block_id: int) -> None:
        others = self._others.get(block_hash)
        if others is None:
            found = self.first.pop(block_hash)
            assert found == block_id, "the block is not under this key"
            return
        if self.first[block_hash] == block_id:
            self.first[block_hash] = others.pop(0)
        else:
            others.remove(block_id)
        if not others:
            del self._others[block_hash]

    def clear(self) -> None:
        """Forget every key."""
        self.first.clear()
        self._others.clear()

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.first)

    def __len__(self) -> int:
        """Keys, not blocks."""
        return len(self.first)
