"""Why a request ended, what it used, and when."""

from dataclasses import dataclass
from enum import StrEnum

from ratoon.request.explanation import Explanation
from ratoon.request.hit_limit import HitLimit


class FinishReason(StrEnum):
    """Why no more tokens come."""

    STOP = "stop"  # end-of-sequence token, stop token or stop string
    LENGTH = "length"  # max_tokens or the end of the context
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. Every prompt token is cached or computed: the two add up to `prompt_tokens`.

    `limited_by` says what ended the cached part, and where; None where the request never ran. `explanation`
    says why, where explanations are on.
    `committed_tokens` are those of prompt and output that other requests could find at the end. Drafts count
    when they were verified.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    limited_by: HitLimit | None = None
    committed_tokens: int = 0
    explanation: Explanation | None = None
    draft_tokens: int = 0
    accepted_draft_tokens: int = 0

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were run through the model."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class Timings:
    """Moments of one request in seconds, all on the engine's clock; None for what never happened."""

    arrival_s: float
    finished_s: float
    first_scheduled_s: float | None = None
    first_token_s: float | None = None

    @property
    def queue_s(self) -> float | None:
        """Seconds from arrival until the first tokens were scheduled."""
        return None if self.first_scheduled_s is None else self.first_scheduled_s - self.arrival_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first output token."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s

    @property
    def e2e_s(self) -> float:
        """Seconds from arrival to the end."""
        return self.finished_s - self.arrival_s
