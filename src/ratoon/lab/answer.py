"""`Answer`: what a client saw of one request, and the times derived from it.

All times are seconds on the client's monotonic clock, counted from the moment the request was sent. The
server's own clock is never read, so no two clocks are mixed.
"""

import itertools
from dataclasses import asdict, dataclass
from typing import Any, Self

CLOCKS = (
    ("sent", "Every clock starts here: the connection is open, the request is about to be written."),
    ("TTFT", "time to first token: from sent until the first event that carries output has been read."),
    ("ITL", "inter-token latency: the gap between two events that carry output, one value per gap. "
            "A server that sends several tokens in one event has fewer, longer gaps."),
    ("TPOT", "time per output token: from the first to the last of these events, divided by output tokens "
             "less one. Undefined for an answer of one token."),
    ("E2E", "end to end: from sent until the stream's end marker has been read."),
    ("tokens/s", "sum of input (or output) tokens divided by the sum of E2E over the same requests."),
)  # fmt: skip
"""What starts and what stops each clock, as reports print it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request as the client saw it.

    `error` says why it failed; the other fields then hold what was seen.
    """

    sent_at_s: float
    """When it was sent, on the client's monotonic clock: comparable within one run only."""
    arrivals_s: tuple[float, ...] = ()
    """When each event that carries output had been read, since sending."""
    end_s: float = 0.0
    """When the end of the stream had been read, since sending; 0 where it never came."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    """Prompt tokens that the server says it took from its cache; None where it says nothing."""
    output_ids: tuple[int, ...] | None = None
    """Ids of the output, where the server tells them."""
    text_digest: str = ""
    """SHA-256 of the output text, shortened: equal answers are seen to be equal without keeping them."""
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """Time to first token."""
        return self.arrivals_s[0]

    @property
    def itl_s(self) -> list[float]:
        """Gaps between events that carry output."""
        return [later - earlier for earlier, later in itertools.pairwise(self.arrivals_s)]

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first."""
        if self.completion_tokens < 2:
            return None
        return (self.arrivals_s[-1] - self.arrivals_s[0]) / (self.completion_tokens - 1)

    @property
    def finished_at_s(self) -> float:
        """When it ended, on the same clock as `sent_at_s`."""
        return self.sent_at_s + self.end_s

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; times to the microsecond."""
        values = asdict(self)
        values["arrivals_s"] = [round(time, 6) for time in self.arrivals_s]
        values["sent_at_s"], values["end_s"] = round(self.sent_at_s, 6), round(self.end_s, 6)
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return what `to_json` was given."""
        output_ids = values["output_ids"]
        return cls(
            **values
            | {
                "arrivals_s": tuple(values["arrivals_s"]),
                "output_ids": None if output_ids is None else tuple(output_ids),
            }
        )
