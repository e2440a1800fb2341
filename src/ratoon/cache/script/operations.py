"""`CacheScript` and its operations, as they stand in the file and after every check that needs no cache."""

from dataclasses import dataclass

from ratoon.identity.extra_keys import ExtraKeys
from ratoon.spec.cache_group import CacheGroupSpec


@dataclass(frozen=True, slots=True)
class Admit:
    """Match and reserve for the whole prompt."""

    request: str
    tokens: tuple[int, ...]
    extra_keys: ExtraKeys


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute the next `num_tokens` known tokens, all that are left if None, and commit."""

    request: str
    num_tokens: int | None


@dataclass(frozen=True, slots=True)
class Append:
    """Make tokens known."""

    request: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """Give slots to guessed tokens."""

    request: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Verify:
    """Compute all known tokens and the drafts, of which the first `accepted` become known."""

    request: str
    accepted: int


@dataclass(frozen=True, slots=True)
class Preempt:
    """Release the blocks, keep the hash chain."""

    request: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Match and reserve for all known tokens of a preempted request."""

    request: str


@dataclass(frozen=True, slots=True)
class Free:
    """Release the blocks and forget the request."""

    request: str


@dataclass(frozen=True, slots=True)
class Reset:
    """Drop every key."""


@dataclass(frozen=True, slots=True)
class State:
    """Show the pool."""


Operation = Admit | Compute | Append | Draft | Verify | Preempt | Resume | Free | Reset | State


@dataclass(frozen=True, slots=True)
class CacheScript:
    """A cache and what to do with it."""

    groups: tuple[CacheGroupSpec, ...]
    num_blocks: int
    block_size: int
    share_in_flight: bool
    operations: tuple[Operation, ...]


def name_of(operation: Operation) -> str:
    """Return the operation's name in a script."""
    return type(operation).__name__.lower()
