"""`PromptLookup`: guesses that what followed the last tokens earlier will follow them again.

Answers that quote, summarise or edit their prompt, and those that repeat themselves, are guessed well at
next to no cost (prompt lookup decoding, A. Saxena, 2023).
"""

from collections.abc import Sequence

from ratoon.draft.drafter import NO_GUESS, Guess
from ratoon.request.request import Request

LONGEST_MATCH = 16
"""Tokens up to which a longer match counts as a better one."""

MAX_PLACES = 8
"""The latest places that are looked at; others are as good."""


class TokenIndex:
    """Where each pair of tokens stood in one request. Grows with it, a dictionary entry per token."""

    def __init__(self, first: int = 0) -> None:
        self._places: dict[tuple[int, int], list[int]] = {}
        self._next = first + 1

    def grow(self, tokens: Sequence[int]) -> None:
        """Take in what is new among a request's known tokens."""
        for place in range(self._next, len(tokens)):
            self._places.setdefault((tokens[place - 1], tokens[place]), []).append(place)
        self._next = max(self._next, len(tokens))

    def continuation(self, tokens: Sequence[int], count: int) -> Guess:
        """Return `count` tokens that followed the longest earlier match of the last ones; or none.

        The guess's kind is the match's length on a coarse scale: the longer, the likelier. Among equal
        matches the latest counts. A match that overlaps the end is a repetition and goes on as such.
        `tokens` are those that the index has grown to.
        """
        last = len(tokens) - 1
        places = self._places.get((tokens[-2], tokens[-1]), ()) if last > 0 else ()
        best, best_length = last, 0
        for place in reversed(places[-MAX_PLACES - 1 :]):
            length = _match_length(tokens, place, last)
            if place < last and length > best_length:
                best, best_length = place, length
        if not best_length:
            return NO_GUESS
        found: list[int] = []
        for place in range(best + 1, best + 1 + count):
            found.append(tokens[place] if place <= last else found[place - last - 1])
        return Guess(found, best_length.bit_length())


class PromptLookup:
    """The `Drafter` that needs no model. Placeholders of input rows are not searched."""

    is_free = True

    def __init__(self) -> None:
        self._indexes: dict[int, TokenIndex] = {}

    def propose(self, wishes: Sequence[tuple[Request, int]]) -> list[Guess]:
        """See `Drafter`."""
        self._indexes = {
            request.id: self._indexes.get(request.id) or TokenIndex(request.chain.extra_keys.uniform_from)
            for request, _ in wishes
        }
        return [self._guess(request, count) if count else NO_GUESS for request, count in wishes]

    def round_seconds(self, num_requests: int) -> float:
        """See `Drafter`."""
        return 0.0

    def reset_cache(self) -> None:
        """See `Drafter`; what a request told is its own."""

    def _guess(self, request: Request, count: int) -> Guess:
        index, tokens = self._indexes[request.id], request.chain.tokens
        index.grow(tokens)
        return index.continuation(tokens, count)


def _match_length(tokens: Sequence[int], place: int, last: int) -> int:
    """Return how many tokens up to `place` equal those up to `last`, `LONGEST_MATCH` at most."""
    most = min(place + 1, LONGEST_MATCH)
    for length in range(most):
        if tokens[place - length] != tokens[last - length]:
            return length
    return most
