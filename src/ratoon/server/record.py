"""`RequestRecord`: what is remembered of a finished request, for the log and the metrics."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"  # the client went away
    DEADLINE = "deadline"  # it took longer than it may, or than a stopping server waits
    FAILED = "failed"  # a step failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Token counts are those of the response's `usage`; times are in seconds on the server's clock.

    `ttft_s` and `queue_s` are None where no token came, or the request was never scheduled.
    """

    request_id: str
    tenant: str
    endpoint: str
    outcome: Outcome
    num_answers: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queue_s: float | None
    ttft_s: float | None
    e2e_s: float
    prompt: str | None = None
    """The prompt's text, only where the server was told to log prompts."""

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per output token after the first; of all answers together where there are several."""
        later_tokens = self.output_tokens - self.num_answers
        if self.ttft_s is None or later_tokens <= 0:
            return None
        return (self.e2e_s - self.ttft_s) * self.num_answers / later_tokens
