"""`Explanation`: why no more of a prompt was cached, and what shows it."""

from dataclasses import dataclass
from enum import StrEnum


class MissReason(StrEnum):
    """Why the first block that was not cached was not."""

    NEVER_SEEN = "never_seen"  # nothing that the caller sent went on like this
    DIVERGED = "diverged"  # something the caller sent did, up to a token in this block
    EVICTED = "evicted"
    RESET = "reset"
    SALT = "salt"  # the same tokens were sent with another salt, or without one
    ADAPTER = "adapter"
    INPUT_ROWS = "input_rows"  # the same tokens around other rows, an image's for instance
    WINDOW = "window"  # the prefix is there, but not what a sliding window sees before its end
    STILL_COMPUTED = "still_computed"  # by another request of the caller's
    BELOW_ONE_BLOCK = "below_one_block"  # what is left does not fill a block
    ONLY_LAST_TOKEN = "only_last_token"  # it always runs
    READ_DISABLED = "read_disabled"
    CACHING_OFF = "caching_off"
    UNKNOWN = "unknown"


class Pressure(StrEnum):
    """For whose request a block was evicted, as its former owner may know it."""

    OWN = "own"
    OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Eviction:
    """`ago_s` before the question, a block that had been idle for `idle_s` was taken away."""

    ago_s: float
    idle_s: float
    pressure: Pressure


@dataclass(frozen=True, slots=True)
class Relative:
    """The nearest of the caller's own prompts and answers: equal in `num_common_tokens` tokens.

    `position` is that of the first difference. `before`, `own` and `other` are tokens around it: what both
    have, what the prompt goes on with, and what the relative went on with. Where the tokens are all equal,
    something else differs, and the reason says what. `is_stored` tells whether a block of the relative is
    still there.
    """

    num_common_tokens: int
    position: int
    before: tuple[int, ...]
    own: tuple[int, ...]
    other: tuple[int, ...]
    is_stored: bool
    last_used_ago_s: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The prompt's first `num_cached_tokens` of `num_prompt_tokens` were cached; `reason` ended them.

    `block` is the first logical block that was not taken, `group` the cache group that lacked it, `window`
    that group's. `num_remembered_tokens` would have been cached if nothing had ever been evicted.
    `record_s` is how far back the record goes, None if nothing that was ever stored has been forgotten.
    """

    reason: MissReason
    num_prompt_tokens: int
    num_cached_tokens: int
    block: int | None = None
    group: int | None = None
    window: int | None = None
    relative: Relative | None = None
    eviction: Eviction | None = None
    num_remembered_tokens: int = 0
    record_s: float | None = None
