"""What happens to keys, in order: the `EventBus` counts it, and tells it to those that follow the index.

One event covers all blocks of one operation, so that recording costs next to nothing per block. Events are
values of plain integers and bytes, and say which epoch they belong to, so that a copy of the index can be
kept anywhere: a follower subscribes, takes `CacheManager.snapshot`, and applies every event that is numbered
from the snapshot's `next_event` on.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from ratoon.cache.stats import CacheStats


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks of one cache group entered the index; `block_ids[i]` got the key `block_hashes[i]`."""

    epoch: int
    group: int
    block_ids: tuple[int, ...]
    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BlocksEvicted:
    """Blocks lost their keys because they are handed out again; the three tuples run in parallel."""

    epoch: int
    groups: tuple[int, ...]
    block_ids: tuple[int, ...]
    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CacheReset:
    """Every key was dropped; so many blocks, used or idle, had one. `epoch` is the new one."""

    epoch: int
    num_dropped_blocks: int


CacheEvent = BlocksStored | BlocksEvicted | CacheReset


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events in order; the i-th has the number `first` + i.

    `num_missed` events before them are lost, because this follower read too late: it must start again from a
    snapshot.
    """

    first: int
    events: tuple[CacheEvent, ...]
    num_missed: int


class EventBus:
    """Sole writer of the epoch and of the counters of stored and evicted blocks and of resets.

    The last `capacity` events are kept, and only while there is a subscription. One thread publishes; any
    thread may subscribe and read.
    """

    def __init__(self, stats: CacheStats, capacity: int) -> None:
        self.epoch = 0
        self._stats = stats
        self._events: deque[CacheEvent] = deque(maxlen=capacity)
        self._next = 0
        self._subscriptions: set[Subscription] = set()
        self._lock = threading.Lock()

    @property
    def next_event(self) -> int:
        """The number that the next recorded event will have."""
        return self._next

    def stored(self, group: int, block_ids: Sequence[int], block_hashes: Sequence[bytes]) -> None:
        """Say that blocks of a group got their keys."""
        self._stats.num_stored_blocks += len(block_ids)
        if self._subscriptions:
            self._record(BlocksStored(self.epoch, group, tuple(block_ids), tuple(block_hashes)))

    def evicted(self, groups: Sequence[int], block_ids: Sequence[int], block_hashes: Sequence[bytes]) -> None:
        """Say that blocks lost their keys to be handed out again."""
        self._stats.num_evicted_blocks += len(block_ids)
        if self._subscriptions:
            self._record(BlocksEvicted(self.epoch, tuple(groups), tuple(block_ids), tuple(block_hashes)))

    def reset(self, num_dropped_blocks: int) -> CacheReset:
        """Begin the next epoch: all keys were dropped."""
        self.epoch += 1
        self._stats.num_resets += 1
        event = CacheReset(self.epoch, num_dropped_blocks)
        if self._subscriptions:
            self._record(event)
        return event

    def subscribe(self) -> "Subscription":
        """Follow events from the next one on, until the subscription is closed."""
        with self._lock:
            subscription = Subscription(self, self._next)
            self._subscriptions.add(subscription)
        return subscription

    def _record(self, event: CacheEvent) -> None:
        with self._lock:
            self._events.append(event)
            self._next += 1

    def _read(self, first: int) -> EventBatch:
        with self._lock:
            oldest = self._next - len(self._events)
            start = max(first, oldest)
            events = tuple(islice(self._events, start - oldest, None))
        return EventBatch(start, events, start - first)

    def _unsubscribe(self, subscription: "Subscription") -> None:
        with self._lock:
            self._subscriptions.discard(subscription)
            if not self._subscriptions:
                self._events.clear()


class Subscription:
    """One follower's place in the stream of events."""

    __slots__ = ("_bus", "_next")

    def __init__(self, bus: EventBus, first: int) -> None:
        self._bus = bus
        self._next = first

    def read(self) -> EventBatch:
        """Return the events since the last call."""
        batch = self._bus._read(self._next)
        self._next = batch.first + len(batch.events)
        return batch

    def close(self) -> None:
        """Stop following; without followers nothing is recorded."""
        self._bus._unsubscribe(self)
