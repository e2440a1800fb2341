"""`Drafter`: what guesses the next tokens of requests, and the `Guess` that it returns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ratoon.request.request import Request


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that might come next. Guesses of one `kind` are about equally likely to be right."""

    tokens: Sequence[int] = ()
    kind: int = 0


NO_GUESS = Guess()


class Drafter(Protocol):
    """Used from one thread. Any guess is allowed, and none."""

    @property
    def is_free(self) -> bool:
        """Whether guessing takes so little time that guesses may be made that will not be verified."""
        ...

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Guess]:
        """Guess what follows each request's known tokens: at most as many tokens as are wanted.

        `wanted` names every request that decodes. What was kept for any other is dropped. A drafter that is
        not free guesses in kind 0 only, because their number is decided before the guesses are known.
        """
        ...

    def round_seconds(self, num_requests: int) -> float:
        """Return the time it takes to guess one more token for so many requests, at least one, together."""
        ...

    def reset(self) -> None:
        """Drop what was kept for every request, after `propose` has raised."""
        ...

    def reset_cache(self) -> None:
        """Forget what was kept for requests to come."""
        ...
