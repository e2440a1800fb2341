"""`BlockPool`: every block of the KV store by its number, and the state that each is in.

    references | key  | where            | state
    > 0        | none | in tables        | being filled, or a tail
    > 0        | yes  | in tables        | committed and in use, shareable
    0          | yes  | eviction policy  | idle: still a hit, evictable
    0          | none | stack of free    | free

The free queue is the free blocks followed by the idle ones: blocks without a key always go first, as
nothing is lost by reusing them. All facts are flat lists indexed by block id; there is no object per block.
Block 0 is the null block: it is in no queue, has no key and no references.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import cast

from ratoon.cache.events import EventBus
from ratoon.cache.eviction import EvictionPolicy
from ratoon.cache.index import BlockIndex

NULL_BLOCK = 0


class BlockPool:
    """Sole writer of references, keys, token records and queues.

    `ref_counts`, `block_hashes`, `block_groups` and `block_tokens` are read by block id. A block has a key,
    its hash and its group, exactly while `block_hashes` has an entry; only then do the other two mean
    anything. `indexes` holds one `BlockIndex` per cache group. `num_dropped_keys` grows whenever a block
    loses its key.
    """

    def __init__(self, num_blocks: int, num_groups: int, policy: EvictionPolicy, events: EventBus) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks
        self.block_hashes: list[bytes | None] = [None] * num_blocks
        self.block_groups = [0] * num_blocks
        self.block_tokens: list[bytes | None] = [None] * num_blocks
        self.indexes = tuple(BlockIndex() for _ in range(num_groups))
        self.num_dropped_keys = 0
        self._free = list(range(num_blocks - 1, NULL_BLOCK, -1))  # its end is the front of the queue
        self._idle = policy
        self._events = events

    @property
    def num_free(self) -> int:
        """Blocks that `allocate` can hand out: free and idle."""
        return len(self._free) + len(self._idle)

    @property
    def num_idle(self) -> int:
        """Blocks without references that are still a hit."""
        return len(self._idle)

    @property
    def num_keys(self) -> int:
        """Different keys; a key may have several blocks."""
        return sum(map(len, self.indexes))

    def free_queue(self) -> Iterator[int]:
        """Go through the blocks in the order in which `allocate` would hand them out."""
        yield from reversed(self._free)
        yield from self._idle

    def keyed_blocks(self) -> list[int]:
        """Return the blocks that have a key, in order of id."""
        return [block_id for block_id, block_hash in enumerate(self.block_hashes) if block_hash is not None]

    def keys(self) -> Iterator[tuple[int, int, bytes]]:
        """Go through the blocks that have a key: block id, cache group, block hash."""
        for block_id, block_hash in enumerate(self.block_hashes):
            if block_hash is not None:
                yield block_id, self.block_groups[block_id], block_hash

    def count_refs(self, block_ids: Iterable[int], ref_count: int) -> int:
        """Return how many of the blocks have exactly `ref_count` references."""
        return list(map(self.ref_counts.__getitem__, block_ids)).count(ref_count)

    def pin(self, block_ids: Iterable[int]) -> None:
        """Add a reference to each block; idle ones leave the queue."""
        refs = self.ref_counts
        idle = []
        for block_id in block_ids:
            count = refs[block_id]
            refs[block_id] = count + 1
            if not count:
                idle.append(block_id)
        if idle:
            self._idle.remove(idle)

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks from the front of the queue, with one reference each.

        A block that has a key loses it first. There must be enough: `count` <= `num_free`.
        """
        assert count <= self.num_free, "the caller makes sure that there are enough blocks"
        split = max(0, len(self._free) - count)
        block_ids = self._free[split:]
        del self._free[split:]
        block_ids.reverse()
        if len(block_ids) < count:
            victims = self._idle.evict(count - len(block_ids))
            self._drop_keys(victims)
            block_ids += victims
        refs = self.ref_counts
        for block_id in block_ids:
            refs[block_id] = 1
        return block_ids

    def release(self, block_ids: Sequence[int]) -> None:
        """Take a reference from each block, in the order given.

        Of those that are left without references, blocks without a key are pushed one by one to the front of
        the queue, keyed ones go to the back. Raises `ValueError`, with nothing changed, if a block has no
        reference.
        """
        refs = self.ref_counts
        if not all(map(refs.__getitem__, block_ids)):
            raise ValueError(f"a block of {list(block_ids)} is released more often than it was taken")
        hashes = self.block_hashes
        free = self._free
        idle = []
        for block_id in block_ids:
            count = refs[block_id] - 1
            refs[block_id] = count
            if not count:
                if hashes[block_id] is None:
                    free.append(block_id)
                else:
                    idle.append(block_id)
        if idle:
            self._idle.add(idle)

    def store(
        self,
        group: int,
        block_ids: Sequence[int],
        block_hashes: Sequence[bytes],
        block_tokens: Sequence[bytes],
    ) -> None:
        """Give blocks of one group, which are in use and without a key, their keys and token records."""
        hashes, groups, tokens = self.block_hashes, self.block_groups, self.block_tokens
        for block_id, block_hash, record in zip(block_ids, block_hashes, block_tokens, strict=True):
            hashes[block_id] = block_hash
            tokens[block_id] = record
        if len(self.indexes) > 1:
            for block_id in block_ids:
                groups[block_id] = group
        self.indexes[group].add(block_hashes, block_ids)
        self._events.stored(group, block_ids, block_hashes)

    def drop_all_keys(self) -> int:
        """Forget every key; return how many blocks had one. Idle blocks become free and keep their places."""
        keyed = self.keyed_blocks()
        for block_id in keyed:
            self.block_hashes[block_id] = self.block_tokens[block_id] = None
        for index in self.indexes:
            index.clear()
        self._free[:0] = reversed(self._idle.evict(len(self._idle)))
        self.num_dropped_keys += len(keyed)
        return len(keyed)

    def _drop_keys(self, victims: Sequence[int]) -> None:
        hashes, tokens = self.block_hashes, self.block_tokens
        lost = cast("tuple[bytes, ...]", tuple(map(hashes.__getitem__, victims)))  # idle blocks have keys
        groups = tuple(map(self.block_groups.__getitem__, victims))
        for g, index in enumerate(self.indexes):
            if groups.count(g) == len(groups):
                index.remove(lost, victims)
                break
            own = [group == g for group in groups]
            index.remove(tuple(compress(lost, own)), tuple(compress(victims, own)))
        for block_id in victims:
            hashes[block_id] = tokens[block_id] = None
        self.num_dropped_keys += len(lost)
        self._events.evicted(groups, victims, lost)
