"""`describe`: an explanation for people and programs, with the caller's own text around a difference."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ratoon.lint.prompt import Piece
from ratoon.request.explanation import Eviction, Explanation, MissReason, Pressure, Relative

Json = dict[str, object]
Decode = Callable[[Sequence[int]], str]

_SENTENCES = {
    MissReason.NEVER_SEEN: "Nothing sent before goes on like this: these tokens are new.",
    MissReason.RESET: "The block was cached, and the cache was reset since.",
    MissReason.SALT: "The same tokens are cached under another cache_salt.",
    MissReason.ADAPTER: "The same tokens are cached, computed with another adapter or other adapter weights.",
    MissReason.INPUT_ROWS: "The same tokens are cached around another image or other input rows.",
    MissReason.STILL_COMPUTED: "Another request of yours is computing this block right now.",
    MissReason.BELOW_ONE_BLOCK: "Every full block was cached; the rest is shorter than a block.",
    MissReason.ONLY_LAST_TOKEN: "The whole prompt was cached; the last token always runs.",
    MissReason.READ_DISABLED: "The request did not read the cache: it said so, or its prompt is scored.",
    MissReason.CACHING_OFF: "The server runs without prefix caching.",
    MissReason.UNKNOWN: "The block was not found, and nothing on record shows why.",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a prompt: `offset` characters into its piece number `index`."""

    index: int
    role: str
    offset: int


def describe(
    explanation: Explanation, ids: Sequence[int], decode: Decode, pieces: Sequence[Piece] = ()
) -> Json:
    """Return an explanation of the prompt `ids` as JSON; `pieces` are the messages that it was made from."""
    relative, eviction = explanation.relative, explanation.eviction
    place = None
    if relative is not None and relative.other:
        place = find_place(pieces, decode(ids), len(decode(ids[: relative.position])))
    found: Json = {
        "reason": explanation.reason.value,
        "message": sentence(explanation, place),
        "prompt_tokens": explanation.num_prompt_tokens,
        "cached_tokens": explanation.num_cached_tokens,
        "remembered_tokens": explanation.num_remembered_tokens,
    }
    for name in ("block", "group", "window", "record_s"):
        if (value := getattr(explanation, name)) is not None:
            found[name] = round(value, 3) if name == "record_s" else value
    if relative is not None:
        found["relative"] = _relative(relative, decode)
    if place is not None:
        found["where"] = {"message": place.index, "role": place.role, "offset": place.offset}
    if eviction is not None:
        found["eviction"] = {
            "ago_s": round(eviction.ago_s, 3),
            "idle_s": round(eviction.idle_s, 3),
            "pressure": eviction.pressure.value,
        }
    return found


def sentence(explanation: Explanation, place: Place | None = None) -> str:
    """Return the reason in one or two sentences, without any text of a prompt."""
    if explanation.reason is MissReason.DIVERGED and explanation.relative is not None:
        where = f", in the {place.role} text, {place.offset} characters in" if place else ""
        return (
            f"The prompt leaves the nearest one sent before at token {explanation.relative.position}{where}; "
            f"{explanation.relative.num_common_tokens} tokens are common."
        )
    if explanation.eviction is not None:
        return _evicted(explanation, explanation.eviction)
    if explanation.reason in (MissReason.EVICTED, MissReason.WINDOW):
        return "What a sliding window sees before this point is not cached any more."
    if explanation.reason is MissReason.BELOW_ONE_BLOCK and not explanation.num_cached_tokens:
        return "The prompt is shorter than a block; only whole blocks are cached."
    return _SENTENCES[explanation.reason]


def _evicted(explanation: Explanation, eviction: Eviction) -> str:
    what = "The block"
    if explanation.reason is MissReason.WINDOW:
        what = f"A block that a window of {explanation.window} tokens sees before this point"
    whom = "your own requests" if eviction.pressure is Pressure.OWN else "other requests"
    return (
        f"{what} was evicted {eviction.ago_s:.1f} s ago to make room for {whom}, "
        f"after {eviction.idle_s:.1f} s without use."
    )


def _relative(relative: Relative, decode: Decode) -> Json:
    return {
        "common_tokens": relative.num_common_tokens,
        "position": relative.position,
        "before": decode(relative.before),
        "own": decode(relative.own),
        "other": decode(relative.other),
        "is_stored": relative.is_stored,
        "last_used_ago_s": round(relative.last_used_ago_s, 3),
    }


def find_place(pieces: Sequence[Piece], text: str, offset: int) -> Place | None:
    """Return where a character of the whole text stands, if it is in a piece; pieces follow in order."""
    start = 0
    for index, piece in enumerate(pieces):
        wanted = piece.text.strip()
        found = text.find(wanted, start) if wanted else -1
        if found < 0:
            continue
        if found <= offset < found + len(wanted):
            return Place(index, piece.role.value, offset - found)
        start = found + len(wanted)
    return None
