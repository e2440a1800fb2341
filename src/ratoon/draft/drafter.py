"""`Drafter`: whoever guesses tokens."""

from collections.abc import Sequence
from typing import Protocol

from ratoon.request.request import Request


class Drafter(Protocol):
    """Used from one thread. Any guess is allowed, and none."""

    @property
    def is_free(self) -> bool:
        """Whether guessing takes so little time that it may be asked for what is not going to be verified."""
        ...

    def propose(self, wishes: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        """Guess what follows each request's known tokens: at most as many tokens as are wished for.

        `wishes` names every request that decodes. What was kept for any other is dropped.
        """
        ...

    def reset_cache(self) -> None:
        """Forget what was kept for requests to come."""
        ...
