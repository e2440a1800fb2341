"""`WaitingQueue`: the requests that hold no blocks yet, or no longer."""

from bisect import bisect_left, insort

from ratoon.request.request import Request


class WaitingQueue:
    """Sorted by rank: the smaller priority number first, then the earlier arrival.

    A preempted request keeps its arrival, so it returns before everything that came after it.
    """

    def __init__(self) -> None:
        self._requests: list[Request] = []  # the head is last, where taking it away costs nothing

    def push(self, request: Request) -> None:
        """Put a request where its rank puts it."""
        insort(self._requests, request, key=_urgency)

    def head(self) -> Request:
        """Return the request to admit next."""
        return self._requests[-1]

    def remove(self, request: Request) -> None:
        """Take a request out, wherever it stands."""
        index = bisect_left(self._requests, _urgency(request), key=_urgency)
        assert self._requests[index] is request, "ranks are unique"
        del self._requests[index]

    def __len__(self) -> int:
        return len(self._requests)


def _urgency(request: Request) -> tuple[int, int]:
    return -request.priority, -request.arrival
