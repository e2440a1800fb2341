"""`CacheSnapshot`: the whole index at one moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """Every committed block as (block id, cache group, block hash), in order of id.

    What comes after it is told by the events from number `next_event` on.
    """

    epoch: int
    next_event: int
    blocks: tuple[tuple[int, int, bytes], ...]
