"""What one HTTP request used, as its response tells it, read from the deltas of its choices alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from ratoon.request.explanation import Explanation
from ratoon.request.finish import Timings, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReport:
    """What all choices did with the cache, and how long they waited, in seconds from the arrival."""

    cached_tokens: int
    computed_tokens: int
    committed_tokens: int
    limited_by: str | None
    draft_tokens: int
    accepted_draft_tokens: int
    queue_s: float | None
    ttft_s: float | None
    explain: dict[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseUsage:
    """Each prompt once, with what its first choice found cached; the output of all choices."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    report: CacheReport | None = None


class ChoiceUsage:
    """What is known of one choice: `usage` from its first token on, `timings` when it has ended."""

    def __init__(self, num_prompt_tokens: int) -> None:
        self.num_prompt_tokens = num_prompt_tokens
        self.usage = Usage(num_prompt_tokens, 0, 0)
        self.timings: Timings | None = None
        self.num_shown_tokens = 0
        """Output tokens that belong to the response; the engine may have computed more."""


class RequestUsage:
    """Adds up the choices of a request, `n` for each prompt, one prompt's after the other's."""

    def __init__(self, choices: Sequence[ChoiceUsage], *, n: int, arrived_s: float) -> None:
        self.arrived_s = arrived_s
        self.first_token_s: float | None = None
        """When the first token of any choice came. Both are on `time.perf_counter`."""
        self._choices = choices
        self._first_of_prompts = choices[::n]

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token of any choice; None where there was none."""
        return None if self.first_token_s is None else self.first_token_s - self.arrived_s

    @property
    def queue_s(self) -> float | None:
        """The longest wait for a first step, on the engine's clock; None where one has not run."""
        waits = []
        for choice in self._choices:
            if choice.timings is None or choice.timings.queue_s is None:
                return None
            waits.append(choice.timings.queue_s)
        return max(waits)

    def so_far(self) -> ResponseUsage:
        """Return the counts up to now."""
        return ResponseUsage(
            prompt_tokens=sum(choice.num_prompt_tokens for choice in self._first_of_prompts),
            cached_tokens=sum(choice.usage.cached_tokens for choice in self._first_of_prompts),
            completion_tokens=sum(choice.num_shown_tokens for choice in self._choices),
        )

    @property
    def explanation(self) -> Explanation | None:
        """Why no more of the first prompt was cached, if that is explained; known from its first token."""
        return self._choices[0].usage.explanation

    def cache_report(self) -> CacheReport:
        """Return the report; all of it is known when the engine has ended every choice."""
        usages = [choice.usage for choice in self._choices]
        return CacheReport(
            cached_tokens=sum(usage.cached_tokens for usage in usages),
            computed_tokens=sum(usage.computed_tokens for usage in usages),
            committed_tokens=sum(usage.committed_tokens for usage in usages),
            limited_by=None if usages[0].limited_by is None else str(usages[0].limited_by),
            draft_tokens=sum(usage.draft_tokens for usage in usages),
            accepted_draft_tokens=sum(usage.accepted_draft_tokens for usage in usages),
            queue_s=self.queue_s,
            ttft_s=self.ttft_s,
        )
