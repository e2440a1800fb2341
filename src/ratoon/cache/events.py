"""What happened to keys, in order, for whoever mirrors the index elsewhere.

One event covers all blocks of one operation, so that recording costs next to nothing per block.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks of one cache group entered the index; `block_ids[i]` got the key `block_hashes[i]`."""

    group: int
    block_ids: tuple[int, ...]
    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class BlocksEvicted:
    """Blocks lost their keys because they are handed out again; the three tuples run in parallel."""

    groups: tuple[int, ...]
    block_ids: tuple[int, ...]
    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class CacheReset:
    """Every key was dropped; so many blocks, used or idle, had one. `epoch` is the new one."""

    epoch: int
    num_dropped_blocks: int


CacheEvent = BlocksStored | BlocksEvicted | CacheReset


class EventLog:
    """Events since they were last taken; keeps nothing unless it is `recording`."""

    __slots__ = ("_events", "recording")

    def __init__(self, *, recording: bool) -> None:
        self.recording = recording
        self._events: list[CacheEvent] = []

    def add(self, event: CacheEvent) -> None:
        """Record an event."""
        if self.recording:
            self._events.append(event)

    def take(self) -> tuple[CacheEvent, ...]:
        """Return the events in order and forget them."""
        events = tuple(self._events)
        self._events.clear()
        return events
