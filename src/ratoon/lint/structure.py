"""What became of messages: shuffled, dropped, summarised, rewritten, or put behind something that changes."""

from collections import Counter
from collections.abc import Sequence

from ratoon.lint.prompt import Piece, Role
from ratoon.lint.rule import Rule

Gain = tuple[int, Rule]
"""Characters that would be in common without the difference, and what it is."""

STANDING = (Role.TOOLS, Role.SYSTEM, Role.TEXT)
"""Roles of text that is no turn of a conversation."""

SHORT_LINE = 20
"""Shorter lines are in common by chance."""


def restructured(earlier: Sequence[Piece], later: Sequence[Piece]) -> Gain | None:
    """Return what changed from one prompt to a later one that shares more than its beginning."""
    first = num_equal(earlier, later)
    before, after = earlier[first:], later[first:]
    if not before or not after:
        return None
    gains = [_shuffled(before, after), _rewritten(before, after), *_shortened(before, after)]
    return max(gains, key=lambda gain: gain[0])


def num_equal(first: Sequence[Piece], second: Sequence[Piece]) -> int:
    """Return how many pieces two prompts begin with in common."""
    return next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def _shuffled(before: Sequence[Piece], after: Sequence[Piece]) -> Gain:
    """Find the longest beginning that has the same pieces on both sides."""
    longest, balance = 0, Counter[Piece]()
    for i, (a, b) in enumerate(zip(before, after, strict=False), 1):
        balance[a] += 1
        balance[b] -= 1
        if not any(balance.values()):
            longest = i
    return _size(after[:longest]), Rule.SHUFFLED


def _rewritten(before: Sequence[Piece], after: Sequence[Piece]) -> Gain:
    """Find what follows the changed piece unchanged, inside it and after it."""
    num_same = num_equal(before[1:], after[1:])
    gain = _size(after[1 : 1 + num_same])
    if before[0].role is not after[0].role:
        return 0, Rule.HISTORY_REWRITTEN
    if before[0].role in STANDING:
        return gain + _shared_lines(before[0].text, after[0].text), Rule.EARLY_CHANGE
    return gain, Rule.HISTORY_REWRITTEN


def _shortened(before: Sequence[Piece], after: Sequence[Piece]) -> list[Gain]:
    """Find where the later prompt takes up the earlier one again, at once or after a piece of its own."""
    return [
        (
            max(
                (
                    _size(after[skipped : skipped + num_equal(before[j:], after[skipped:])])
                    for j in range(least, len(before))
                ),
                default=0,
            ),
            rule,
        )
        for skipped, least, rule in ((0, 1, Rule.HISTORY_DROPPED), (1, 2, Rule.HISTORY_SUMMARISED))
    ]


def _shared_lines(before: str, after: str) -> int:
    """Return the characters of the lines after the first difference that both have there."""
    a, b = before.splitlines(keepends=True), after.splitlines(keepends=True)
    first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    shared = Counter(a[first:]) & Counter(b[first:])
    return sum(len(line) * count for line, count in shared.items() if len(line) >= SHORT_LINE)


def _size(pieces: Sequence[Piece]) -> int:
    return sum(len(piece.text) for piece in pieces)
