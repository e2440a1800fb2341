"""Why a request ended, and what it used."""

from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why no more tokens come."""

    STOP = "stop"  # end-of-sequence token, stop token or stop string
    LENGTH = "length"  # max_tokens or the end of the context
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request. Every prompt token is either cached or computed: the two add up to `prompt_tokens`."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were run through the model."""
        return self.prompt_tokens - self.cached_tokens
