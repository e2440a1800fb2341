"""`PromptLookup`: guesses that what followed the last tokens earlier will follow them again.

Answers that quote, summarise or edit their prompt, and those that repeat themselves, are guessed well at
next to no cost (prompt lookup decoding, A. Saxena, 2023).
"""

from collections.abc import Sequence

from ratoon.draft.drafter import NO_GUESS, Guess
from ratoon.request.request import Request

LONGEST_MATCH = 16
"""Tokens up to which a longer match counts as a better one."""

MAX_CANDIDATES = 8
"""How many of the latest occurrences of the last two tokens are compared; older ones are as good."""


class TokenIndex:
    """Where each pair of tokens stands in one request. Grows with it, a dictionary entry per token."""

    def __init__(self, first: int = 0) -> None:
        self._positions: dict[tuple[int, int], list[int]] = {}
        self._next = first + 1

    def grow(self, tokens: Sequence[int]) -> None:
        """Take in what is new among a request's known tokens."""
        for position in range(self._next, len(tokens)):
            self._positions.setdefault((tokens[position - 1], tokens[position]), []).append(position)
        self._next = max(self._next, len(tokens))

    def continuation(self, tokens: Sequence[int], count: int) -> Guess:
        """Return `count` tokens that followed the longest earlier match of the last ones; or none.

        The guess's kind is the match's length on a coarse scale: the longer, the likelier. Among equal
        matches the latest counts. A match that overlaps the end is a repetition and goes on as such.
        `tokens` are those that the index has grown to.
        """
        last = len(tokens) - 1
        candidates = self._positions.get((tokens[-2], tokens[-1]), ()) if last > 0 else ()
        best, best_length = last, 0
        for position in reversed(candidates[-MAX_CANDIDATES - 1 :]):
            length = _match_length(tokens, position, last)
            if position < last and length > best_length:
                best, best_length = position, length
        if not best_length:
            return NO_GUESS
        found: list[int] = []
        for position in range(best + 1, best + 1 + count):
            found.append(tokens[position] if position <= last else found[position - last - 1])
        return Guess(found, best_length.bit_length())


class PromptLookup:
    """The `Drafter` that needs no model. Placeholders of input rows are not searched."""

    is_free = True

    def __init__(self) -> None:
        self._indexes: dict[int, TokenIndex] = {}

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Guess]:
        """See `Drafter`."""
        self._indexes = {
            request.id: self._indexes.get(request.id) or TokenIndex(request.chain.extra_keys.uniform_from)
            for request, _ in wanted
        }
        return [self._guess(request, count) if count else NO_GUESS for request, count in wanted]

    def round_seconds(self, num_requests: int) -> float:
        """See `Drafter`."""
        return 0.0

    def reset(self) -> None:
        """See `Drafter`."""
        self._indexes = {}

    def reset_cache(self) -> None:
        """See `Drafter`; the indexes belong to requests that run, so they stay."""

    def _guess(self, request: Request, count: int) -> Guess:
        index, tokens = self._indexes[request.id], request.chain.tokens
        index.grow(tokens)
        return index.continuation(tokens, count)


def _match_length(tokens: Sequence[int], position: int, last: int) -> int:
    """Return how many tokens up to `position` equal those up to `last`, `LONGEST_MATCH` at most."""
    most = min(position + 1, LONGEST_MATCH)
    for length in range(most):
        if tokens[position - length] != tokens[last - length]:
            return length
    return most
