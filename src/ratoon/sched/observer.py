"""`RequestObserver`: what the scheduler tells of each request to an observer, if it has one."""

from typing import Protocol

from ratoon.cache.match import Match
from ratoon.request.request import Request


class RequestObserver(Protocol):
    """Called on the engine's thread, between the changes that it is told of."""

    def arrived(self, request: Request) -> None:
        """Take note of a request that was queued."""
        ...

    def admitted(self, request: Request, match: Match | None) -> None:
        """Take note of a first admission with this match; None if there was no hit."""
        ...

    def gained(self, request: Request, match: Match) -> None:
        """Take note of a running request that found blocks which others have computed meanwhile."""
        ...

    def ended(self, request: Request) -> None:
        """Take note of a request that holds nothing any more."""
        ...
