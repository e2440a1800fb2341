"""What steps did and where their time went: one step, and all of them."""

from dataclasses import dataclass
from typing import NamedTuple

from ratoon.step import SharedReads, StepPlan, StepResult


class StepStats(NamedTuple):
    """What one step did and where its time went; a failed one has no `result`.

    The counts of requests are those after the step. What most steps are never asked is found when it is.
    """

    plan: StepPlan
    result: StepResult | None
    num_running: int
    num_waiting: int
    draft_s: float
    plan_s: float
    execute_s: float
    apply_s: float

    @property
    def num_tokens(self) -> int:
        """Tokens run, drafts included."""
        return self.plan.num_tokens

    @property
    def num_scheduled(self) -> int:
        """Requests that ran."""
        return len(self.plan.chunks)

    @property
    def num_drafts(self) -> int:
        """Drafts that were verified."""
        return sum(chunk.num_drafts for chunk in self.plan.chunks)

    @property
    def shared_reads(self) -> tuple[SharedReads, ...]:
        """Requests that read blocks together."""
        return () if self.result is None else self.result.shared_reads

    @property
    def num_saved_block_reads(self) -> int:
        """Block reads that the step was spared, because blocks in common were read once."""
        return sum(reads.num_saved for reads in self.shared_reads)


@dataclass(slots=True)
class StepTotals:
    """All steps since the start. Written by the core after each step; may be read from any thread."""

    num_steps: int = 0
    num_failed_steps: int = 0
    num_failed_in_a_row: int = 0
    num_saved_block_reads: int = 0
    draft_s: float = 0.0
    plan_s: float = 0.0
    execute_s: float = 0.0
    apply_s: float = 0.0

    def add(self, step: StepStats) -> None:
        """Count a step."""
        failed = step.result is None
        self.num_steps += 1
        self.num_failed_steps += failed
        self.num_failed_in_a_row = self.num_failed_in_a_row + 1 if failed else 0
        self.num_saved_block_reads += step.num_saved_block_reads
        self.draft_s += step.draft_s
        self.plan_s += step.plan_s
        self.execute_s += step.execute_s
        self.apply_s += step.apply_s
