"""`HitLimit`: why a request found no more of its prompt in the cache."""

from dataclasses import dataclass
from enum import StrEnum


class LimitReason(StrEnum):
    """What ended the cached part of a prompt."""

    COMPLETE = "complete"
    """Nothing did: every full block was cached."""
    NOT_READ = "not_read"
    """The request does not read the cache."""
    CACHE_OFF = "cache_off"
    """The cache does not keep anything."""
    FULL_ATTENTION = "full_attention"
    """A group with full attention lacked the next block."""
    WINDOW = "window"
    """A group with a sliding window lacked a block that any later point needs."""


@dataclass(frozen=True, slots=True)
class HitLimit:
    """The reason, and where it applied; `str()` puts it in words.

    `position` is the first one that was not cached. Where a block was missing, `group` is the cache group
    that lacked it and `block_hash` its hash: together the key that was not found. `window` is that group's,
    in tokens.
    """

    reason: LimitReason
    position: int = 0
    group: int | None = None
    block_hash: bytes | None = None
    window: int | None = None

    def __str__(self) -> str:
        return _WORDS[self.reason].format(window=self.window)


_WORDS = {
    LimitReason.COMPLETE: "nothing: every full block was cached",
    LimitReason.NOT_READ: "the request: it does not read the cache",
    LimitReason.CACHE_OFF: "the settings: caching is off",
    LimitReason.FULL_ATTENTION: "full attention: the next block was not cached",
    LimitReason.WINDOW: (
        "the window of {window} tokens: its blocks before any later point were not all cached"
    ),
}
