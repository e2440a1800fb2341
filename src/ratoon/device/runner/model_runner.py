"""`ModelRunner`: executes step plans on a decoder.

A step flattens the chunks, runs the decoder over all their tokens, computes logits for the rows that
are read, and reads them in the plan's order: first the rows of prompt log-probabilities, then those
that sample. It knows nothing of requests beyond the plan. Between steps it keeps the arrays made from
unchanged block tables; until a plan says that a request ended, the token counts for its penalties, and how
far its answer is in the grammar that it must keep to.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.protocol import Floats
from ratoon.device.runner.batch import BatchBuilder, FindAdapter, given_rows, no_adapter
from ratoon.device.runner.choosing import choose
from ratoon.device.runner.matchers import MakeMatcher, RequestMatchers, no_grammars
from ratoon.device.sampling.logprobs import top_logprobs
from ratoon.device.sampling.penalties import TokenCounts
from ratoon.errors import GrammarError
from ratoon.step import ChunkResult, Logprobs, SampleSpec, ScheduledChunk, SharedReads, StepPlan, StepResult

LOGIT_ROWS = 64
"""Rows whose logits are held at once: a prompt's worth of them would be larger than the model."""

NO_COUNTS = TokenCounts()

LogitsObserver = Callable[[int, int, bytes], None]
"""Called where a row samples: request id, position, and the bytes of the float32 logits [vocab] after it."""


class ModelRunner:
    """The `Runner` of a real model."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        num_groups: int,
        block_size: int,
        find_adapter: FindAdapter = no_adapter,
        make_matcher: MakeMatcher = no_grammars,
        observe_logits: LogitsObserver | None = None,
    ) -> None:
        self._decoder = decoder
        self._batch = BatchBuilder(num_groups=num_groups, block_size=block_size, find_adapter=find_adapter)
        self._observe_logits = observe_logits
        self._matchers = RequestMatchers(make_matcher)
        self._token_counts: dict[int, TokenCounts] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """Write the K/V of every chunk and sample where asked.

        Raises `EngineError` where the model computes logits that are not finite.
        """
        for request_id in plan.ended:
            self._token_counts.pop(request_id, None)
        self._matchers.forget(plan.ended)
        num_drafts = [chunk.num_drafts for chunk in plan.chunks]
        plan = plan._replace(chunks=tuple(map(self._matchers.cut, plan.chunks)))
        token_ids, inputs = self._batch.build(plan)
        starts = inputs.cu_seqlens.tolist()
        rows = [
            row for chunk, start in zip(plan.chunks, starts, strict=False) for row in _rows_read(chunk, start)
        ]
        hidden = self._decoder(token_ids, inputs, np.array(rows, np.intp), given_rows(plan, starts))
        shared_reads = tuple(
            SharedReads(
                shared.group, tuple(plan.chunks[i].request_id for i in shared.sequences), shared.num_blocks
            )
            for shared in self._decoder.shared_blocks
        )
        logits = self._logits(hidden)
        results = tuple(
            self._read(chunk, logits)._replace(num_cut_drafts=proposed - chunk.num_drafts)
            for chunk, proposed in zip(plan.chunks, num_drafts, strict=True)
        )
        return StepResult(plan.step_id, results, shared_reads)

    def _logits(self, hidden: Floats) -> Iterator[tuple[Floats, int]]:
        """Compute each row's logits and their argmax."""
        for start in range(0, len(hidden), LOGIT_ROWS):
            logits, best = self._decoder.logits(hidden[start : start + LOGIT_ROWS])
            yield from zip(logits, best.tolist(), strict=True)

    def _read(self, chunk: ScheduledChunk, logits: Iterator[tuple[Floats, int]]) -> ChunkResult:
        """Take the chunk's rows of logits, as many as `_rows_read` named."""
        prompt_logprobs: tuple[Logprobs | None, ...] = ()
        if chunk.prompt_logprobs is not None:
            num_best = chunk.prompt_logprobs
            prompt_logprobs = tuple(
                None if target is None else top_logprobs(*next(logits), num_best, target)
                for target in chunk.prompt_targets
            )
        if chunk.sample is None:
            return ChunkResult(chunk.request_id, prompt_logprobs=prompt_logprobs)
        rows = list(islice(logits, chunk.num_drafts + 1))
        try:
            found = self._choose(chunk, chunk.sample, rows)
        except GrammarError as error:
            return ChunkResult(chunk.request_id, error=error.message)
        return found._replace(prompt_logprobs=prompt_logprobs)

    def _choose(
        self, chunk: ScheduledChunk, spec: SampleSpec, rows: Sequence[tuple[Floats, int]]
    ) -> ChunkResult:
        num_known = len(chunk.token_ids) - chunk.num_drafts
        drafts = chunk.token_ids[num_known:]

        def observe(place: int, row: Floats) -> None:
            if self._observe_logits is not None:
                position = chunk.first_position + num_known + place - 1
                self._observe_logits(chunk.request_id, position, row.tobytes())

        matcher = self._matchers.at(chunk.request_id, spec)
        chosen = choose(rows, drafts, spec, self._count_tokens(chunk.request_id, spec), matcher, observe)
        return ChunkResult(
            chunk.request_id,
            chosen.token_ids,
            num_accepted_drafts=chosen.num_accepted,
            logprobs=chosen.logprobs,
            num_forced=chosen.num_forced,
        )

    def _count_tokens(self, request_id: int, spec: SampleSpec) -> TokenCounts:
        """Return the counts of a request's known tokens; kept from step to step where penalties need them."""
        if not spec.params.has_penalties:
            return NO_COUNTS
        counts = self._token_counts.setdefault(request_id, TokenCounts())
        counts.add(spec.new_prompt_token_ids, spec.new_output_token_ids)
        return counts


def _rows_read(chunk: ScheduledChunk, start: int) -> Iterator[int]:
    """Rows of the step, counting from the chunk's first, whose logits are read; a row may be read twice."""
    if chunk.prompt_logprobs is not None:
        yield from (row for row, target in enumerate(chunk.prompt_targets, start) if target is not None)
    if chunk.sample is not None:
        end = start + len(chunk.token_ids)
        yield from range(end - 1 - chunk.num_drafts, end)
