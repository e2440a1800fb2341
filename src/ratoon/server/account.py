"""`Account`: what one HTTP request used, for its own response, for the log and for the metrics."""

import time
from collections.abc import Sequence

from ratoon.request.finish import FinishReason
from ratoon.server.answer_format import Json, usage_body
from ratoon.server.record import Outcome, RequestRecord
from ratoon.server.strands import Strand


class Account:
    """Reads the strands of a request that arrived at `arrived_s` and asked for `n` answers to each prompt.

    `first_token_s` is set when the first token of any answer comes. Both are on `time.perf_counter`.
    """

    def __init__(self, strands: Sequence[Strand], *, n: int, arrived_s: float) -> None:
        self._strands = strands
        self._requests = [strand.request for strand in strands]
        self._firsts = self._requests[::n]
        self._arrived_s = arrived_s
        self.first_token_s: float | None = None

    def usage(self) -> Json:
        """Return OpenAI's usage: each prompt once, with what its first answer found cached, all output."""
        return usage_body(self._prompt_tokens, self._cached_tokens, self._output_tokens)

    def cache_report(self) -> Json:
        """Return what all answers did with the cache. True when the engine has let go of them."""
        cached = sum(request.num_cached for request in self._requests)
        return {
            "cached_tokens": cached,
            "computed_tokens": sum(request.num_prompt_tokens for request in self._requests) - cached,
            "committed_tokens": sum(request.num_committed for request in self._requests),
            "limited_by": None if (limit := self._requests[0].limited_by) is None else str(limit),
            "draft_tokens": sum(request.num_drafts for request in self._requests),
            "accepted_draft_tokens": sum(request.num_accepted_drafts for request in self._requests),
            "queue_s": self._queue_s,
            "ttft_s": self._ttft_s,
        }

    def finished_outcome(self) -> Outcome:
        """Return how the answers ended, if all of them did."""
        cut = any(strand.finish_reason is FinishReason.LENGTH for strand in self._strands)
        return Outcome.LENGTH if cut else Outcome.STOP

    def record(
        self, outcome: Outcome, *, request_id: str, tenant: str, endpoint: str, prompt: str | None
    ) -> RequestRecord:
        """Return what is remembered of the request, which ends now."""
        return RequestRecord(
            request_id=request_id,
            tenant=tenant,
            endpoint=endpoint,
            outcome=outcome,
            num_answers=len(self._strands),
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            output_tokens=self._output_tokens,
            queue_s=self._queue_s,
            ttft_s=self._ttft_s,
            e2e_s=time.perf_counter() - self._arrived_s,
            prompt=prompt,
        )

    @property
    def _prompt_tokens(self) -> int:
        return sum(request.num_prompt_tokens for request in self._firsts)

    @property
    def _cached_tokens(self) -> int:
        return sum(request.num_cached for request in self._firsts)

    @property
    def _output_tokens(self) -> int:
        return sum(strand.num_tokens for strand in self._strands)

    @property
    def _ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self._arrived_s

    @property
    def _queue_s(self) -> float | None:
        """The longest wait for a first step, on the engine's clock; None if one has not begun."""
        waits = []
        for request in self._requests:
            if request.first_scheduled_s is None:
                return None
            waits.append(request.first_scheduled_s - request.arrival_s)
        return max(waits)
