"""What became of every prompt token of a workload, worked out from token ids and the client's clock.

An infinite cache would hit what any earlier request had in front; that is the ideal. A measured hit below it
has one of two reasons. Where the earlier request had already finished when this one was sent, its tokens had
been computed and are gone: evicted, then missed. Where it was still running, they were not there yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ratoon.lab.prefix_model import PrefixModel, WholePrompt
from ratoon.lab.report.samples import Sample


@dataclass(frozen=True, slots=True)
class TokenFate:
    """Prompt tokens of one request."""

    sample: Sample
    ideal: int
    """An infinite cache would find these."""
    cached: int
    evicted: int
    """Computed by finished requests, and not found."""
    not_yet: int
    """Known only from requests still running, and not found.

    Below zero where a request overtook another and found what the order of sending did not promise; the sum
    over all requests is right either way.
    """

    @property
    def computed(self) -> int:
        """All that was not found."""
        return self.sample.answer.prompt_tokens - self.cached

    @property
    def new(self) -> int:
        """Computed because nobody had asked it before."""
        return self.computed - self.evicted - self.not_yet

    @property
    def warm(self) -> bool:
        """Whether at least half of the prompt was found."""
        return 2 * self.cached >= self.sample.answer.prompt_tokens


def token_fates(samples: Sequence[Sample], block_size: int, whole_prompt: WholePrompt) -> list[TokenFate]:
    """Return the fates in the order of sending. Answers must tell their cached tokens."""
    known, finished = (PrefixModel(block_size, whole_prompt) for _ in range(2))
    by_end = iter(sorted(samples, key=lambda sample: sample.answer.finished_at_s))
    next_end = next(by_end, None)
    fates = []
    for sample in sorted(samples, key=lambda sample: sample.answer.sent_at_s):
        while next_end is not None and next_end.answer.finished_at_s <= sample.answer.sent_at_s:
            for model in (known, finished):
                model.add(_computed_tokens(next_end))
            next_end = next(by_end, None)
        prompt = sample["prompt"]
        ideal, available = known.predict(prompt), finished.predict(prompt)
        cached = sample.answer.cached_tokens or 0
        evicted = max(0, available - cached)
        fates.append(TokenFate(sample, ideal, cached, evicted, not_yet=ideal - cached - evicted))
        known.add(prompt)
    return fates


def _computed_tokens(sample: Sample) -> list[int]:
    """Return what has KV once a request is finished: the prompt, and of the output all but the last token."""
    return [*sample["prompt"], *(sample.answer.output_ids or ())[:-1]]
