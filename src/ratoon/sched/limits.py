"""`Limits`: how much the scheduler may put into one step and into one request."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All at least 1, in tokens or requests."""

    max_num_seqs: int
    """Requests that run at the same time."""
    max_num_batched_tokens: int
    """Tokens computed in one step."""
    max_model_len: int
    """Tokens of one request, prompt and output together."""
