"""`GrammarMatcher`: one answer on its way through a grammar."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ratoon.errors import GrammarError

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GrammarMatcher:
    """Follows the tokens of one answer. `ends` are the tokens that end an answer, the usual one first.

    Methods raise `GrammarError` where the grammar turns out too complex to be followed, or where a token is
    not one that it allows.
    """

    def __init__(self, matcher: "LLMatcher", ends: Sequence[int]) -> None:
        self._matcher = matcher
        self._ends = tuple(ends)
        self.num_tokens = 0
        """Tokens of the answer up to now."""
        self.is_over = False
        """Whether the token that ends the answer has come."""

    def mask(self) -> bytes:
        """Return which tokens may come next: one bit for each of the vocabulary, the lowest of a byte first.

        Where the answer is whole, these are the tokens that end it.
        """
        bits = self._matcher.compute_bitmask()
        self._check()
        return bits

    def accept(self, token_ids: Sequence[int]) -> None:
        """Take in what came next. A token that ends the answer is the last."""
        self.num_tokens += len(token_ids)
        told = [token_id for token_id in token_ids if token_id not in self._ends]
        self.is_over = len(told) < len(token_ids)
        if told and not self._matcher.consume_tokens(told):
            self._check()

    def take_forced(self, *, may_end: bool) -> tuple[int, ...]:
        """Take in and return the tokens that must come next, as the tokenizer cuts their text.

        Where nothing may follow any more, that is the token that ends the answer, if it `may_end`.
        """
        if self.is_over:
            return ()
        forced: list[int] = []
        while found := self._matcher.compute_ff_tokens():
            self._matcher.consume_tokens(found)
            forced += found
        self._check()
        if may_end and not forced and self._matcher.is_stopped():
            forced.append(self._ends[0])
            self.is_over = True
        self.num_tokens += len(forced)
        return tuple(forced)

    def num_allowed(self, token_ids: Sequence[int]) -> int:
        """Return how many of these tokens may come next, one after the other."""
        end = next((place for place, token in enumerate(token_ids) if token in self._ends), None)
        told = list(token_ids if end is None else token_ids[:end])
        allowed = self._matcher.validate_tokens(told)
        if end is None or allowed < end:
            return allowed
        after = self._matcher.deep_copy()
        after.consume_tokens(told)
        return end + after.is_accepting()

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0].rstrip(".")
            raise GrammarError(f"The form of the answer cannot be followed further: {reason}.")
