"""The waist between deciding and computing.

The scheduler makes a `StepPlan`, a `Runner` turns it into a `StepResult`, the scheduler applies the
result. Nothing else crosses: no request objects downwards, no arrays upwards. Everything here is a named
tuple of plain integers, floats, bytes and tuples, so a plan can be logged, compared, replayed, or executed by
a simulator, and making one costs little: every step makes several values for every request.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

from ratoon.request.sampling_params import SamplingParams
from ratoon.spec.cache_group import BlockTables


class SampleSpec(NamedTuple):
    """How to choose the token after a chunk.

    `num_generated` counts the request's output tokens so far; with the seed it fixes the random number,
    so the same seed gives the same output whatever else runs. Where the parameters look at the tokens so far
    (penalties), `new_prompt_token_ids` and `new_output_token_ids` are those that no earlier spec of the
    request had: the runner keeps count. `draft_token_ids` stand before this token only if they are accepted.
    `banned_token_ids` may not be chosen (stop tokens before `min_tokens`).
    """

    params: SamplingParams
    seed: int
    num_generated: int
    new_prompt_token_ids: tuple[int, ...] = ()
    new_output_token_ids: tuple[int, ...] = ()
    draft_token_ids: tuple[int, ...] = ()
    banned_token_ids: tuple[int, ...] = ()

    def after(self, token_ids: Sequence[int]) -> Self:
        """Return the spec that holds after the drafts `token_ids`; what was new is not repeated."""
        if not token_ids:
            return self
        num_generated = self.num_generated + len(token_ids)
        return self._replace(
            num_generated=num_generated,
            new_prompt_token_ids=(),
            new_output_token_ids=(),
            draft_token_ids=(*self.draft_token_ids, *token_ids) if self.params.has_penalties else (),
            banned_token_ids=self.banned_token_ids if num_generated < self.params.min_tokens else (),
        )


class ChunkRows(NamedTuple):
    """Input rows for `num_rows` tokens of a chunk from its `offset`-th on, instead of the token table's.

    `data` holds one row after the other, little-endian, in the storage `dtype` (`F32`, `F16` or `BF16`).
    """

    offset: int
    num_rows: int
    dtype: str
    data: bytes


class ScheduledChunk(NamedTuple):
    """The tokens of one request computed in one step.

    `token_ids[i]` stands at position `first_position + i`. Positions below `write_from` are run for their
    logits only and write no KV (the full hit: its last token's KV is committed already).
    The last `num_drafts` tokens are guesses to be verified. `block_tables` covers every position up to the
    chunk's last one; an unchanged table is the same tuple object as in the step before, so that a
    runner may keep what it derived from it.
    `sample` is None while the chunk ends before the request's last known token.
    `prompt_logprobs` asks for that many best log-probabilities at each position of the chunk.
    `adapter` is the digest of the adapter that the tokens go through.
    """

    request_id: int
    token_ids: tuple[int, ...]
    first_position: int
    write_from: int
    block_tables: BlockTables
    sample: SampleSpec | None = None
    num_drafts: int = 0
    prompt_logprobs: int | None = None
    prompt_targets: tuple[int | None, ...] = ()
    """With `prompt_logprobs`: the prompt tokens that follow the chunk's positions, as far as there are; None
    where input rows follow instead."""
    input_rows: tuple[ChunkRows, ...] = ()
    adapter: bytes | None = None


class StepPlan(NamedTuple):
    """What one forward pass computes. In each layer all chunks' K/V is written before any attention reads.

    `ended` names the requests that ended since the plan before: the runner drops what it keeps for them.
    """

    step_id: int
    chunks: tuple[ScheduledChunk, ...]
    ended: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Tokens run in this step, over all chunks."""
        return sum(len(chunk.token_ids) for chunk in self.chunks)


Logprobs = tuple[tuple[int, float], ...]
"""Token ids with natural-log probabilities, best first; the chosen token is last if not among the best."""


class ChunkResult(NamedTuple):
    """What a step found for one chunk.

    `token_ids` are the newly known tokens: accepted drafts, one sampled token, and what must follow it; none
    if the chunk did not sample.
    `logprobs` has one entry per new token if asked for; `prompt_logprobs` one per entry of `prompt_targets`,
    None where that is None. Of the tokens, the form of the answer forced `num_forced`, which were taken
    without sampling; it forbade `num_cut_drafts` drafts, which were not run. With an `error` the request
    cannot go on, although the step succeeded.
    """

    request_id: int
    token_ids: tuple[int, ...] = ()
    num_accepted_drafts: int = 0
    logprobs: tuple[Logprobs, ...] = ()
    prompt_logprobs: tuple[Logprobs | None, ...] = ()
    num_forced: int = 0
    num_cut_drafts: int = 0
    error: str | None = None


class SharedReads(NamedTuple):
    """Requests of a step that attended together over `num_blocks` blocks which they have in common.

    Each of the blocks was read once instead of once per request. `group` is the blocks' cache group.
    """

    group: int
    request_ids: tuple[int, ...]
    num_blocks: int

    @property
    def num_saved(self) -> int:
        """Block reads that the others did not need."""
        return (len(self.request_ids) - 1) * self.num_blocks


class StepResult(NamedTuple):
    """The results of a plan's chunks, in the plan's order, and what they read together."""

    step_id: int
    chunks: tuple[ChunkResult, ...]
    shared_reads: tuple[SharedReads, ...] = ()


class Runner(Protocol):
    """Executes plans. One plan at a time, from one thread."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Write the K/V of every chunk and sample where asked.

        Raises on failure; the KV of the plan's tokens is then undefined and must not be committed.
        """
        ...
