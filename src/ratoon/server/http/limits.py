"""Limits: how much one request, one tenant and all together may ask for; `AdmissionControl` counts.

A limit is either a property of the request (too long, too large: it can never be served, 400 or 413) or of
the moment (too many at once: try again, 429 with `Retry-After`).
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import ceil

from ratoon.errors import InvalidParameterError
from ratoon.server.http.errors import ApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """What one tenant may use; None is no limit besides the engine's own. Raises `InvalidParameterError`."""

    max_concurrent_requests: int | None = None
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    request_deadline_s: float = 600.0

    def __post_init__(self) -> None:
        _check_positive(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What all tenants together may use, and how long one body may be. Raises `InvalidParameterError`."""

    max_body_bytes: int = 4 << 20
    max_concurrent_requests: int = 256
    max_queued_requests: int = 256

    def __post_init__(self) -> None:
        _check_positive(self)


def _check_positive(limits: TenantLimits | ServerLimits) -> None:
    for limit in fields(limits):
        value = getattr(limits, limit.name)
        if value is None and limit.default is None:
            continue
        number = (int, float) if limit.name.endswith("_s") else int
        if isinstance(value, bool) or not isinstance(value, number) or not 0 < value < float("inf"):
            raise InvalidParameterError(f"{limit.name} must be a number above zero, not {value!r}.")


class AdmissionControl:
    """Counts requests in flight and turns away what is too much. Used from the event loop only.

    A request for several answers (`n`, a list of prompts) counts once per answer, since that is what
    the engine runs. `num_running` tells how many of them run; the others wait.
    """

    def __init__(self, limits: ServerLimits, *, num_running: Callable[[], int]) -> None:
        self._limits = limits
        self._num_running = num_running
        self._by_tenant: Counter[str] = Counter()
        self._seconds_per_answer = 1.0

    @property
    def num_in_flight(self) -> int:
        """Answers running or waiting."""
        return self._by_tenant.total()

    @contextmanager
    def admit(self, tenant: str, own: int | None, num_answers: int) -> Iterator[None]:
        """Hold `num_answers` places for a tenant while the context lasts; `own` is the tenant's limit.

        Raises `ApiError`: 400 for never, 429 for not now.
        """
        all_tenants = self._limits.max_concurrent_requests
        most = all_tenants if own is None else min(own, all_tenants)
        if num_answers > most:
            raise ApiError(
                400, f"One request may ask for at most {most} answers here.", code="too_many_answers"
            )
        if own is not None and self._by_tenant[tenant] + num_answers > own:
            raise self._busy(f"You have {self._by_tenant[tenant]} requests running; your limit is {own}.")
        if self.num_in_flight + num_answers > all_tenants:
            raise self._busy("The server is busy with as many requests as it takes at once.")
        if self._num_waiting() >= self._limits.max_queued_requests:
            raise self._busy("The server's queue is full.")
        self._by_tenant[tenant] += num_answers
        try:
            yield
        finally:
            self._by_tenant[tenant] -= num_answers
            if not self._by_tenant[tenant]:
                del self._by_tenant[tenant]

    def note_finished(self, e2e_s: float) -> None:
        """Learn how long a request takes, for `Retry-After`."""
        self._seconds_per_answer += (e2e_s - self._seconds_per_answer) / 16

    def _num_waiting(self) -> int:
        return max(0, self.num_in_flight - self._num_running())

    def _busy(self, message: str) -> ApiError:
        rounds = self.num_in_flight / max(1, self._num_running())
        seconds = min(60, max(1, ceil(rounds * self._seconds_per_answer)))
        return ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(seconds)})
