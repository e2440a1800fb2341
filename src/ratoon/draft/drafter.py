"""`Drafter`: whoever guesses tokens, and the `Guess` that comes of it."""

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
        """Whether guessing takes so little time that it may be asked for what is not going to be verified."""
        ...

    def propose(self, wishes: Sequence[tuple[Request, int]]) -> list[Guess]:
        """Guess what follows each request's known tokens: at most as many tokens as are wished for.

        `wishes` names every request that decodes. What was kept for any other is dropped. A drafter that is
        not free guesses in kind 0 only, because it is asked for what its guesses are worth.
        """
        ...

    def round_seconds(self, num_requests: int) -> float:
        """Say what it takes to guess one more token for so many requests, at least one, together."""
        ...

    def reset_cache(self) -> None:
        """Forget what was kept for requests to come."""
        ...
