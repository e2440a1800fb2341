"""What steps did and where their time went: one step, and all of them."""

from dataclasses import dataclass
from typing import NamedTuple

from ratoon.step import SharedReads


class StepStats(NamedTuple):
    """What one step did and where its time went. The counts of requests are those after the step.

    `shared_reads` names the requests that read blocks together; a failed step has none.
    """

    num_tokens: int
    num_scheduled: int
    num_running: int
    num_waiting: int
    draft_s: float
    plan_s: float
    execute_s: float
    apply_s: float
    shared_reads: tuple[SharedReads, ...] = ()

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

    def add(self, step: StepStats, *, failed: bool) -> None:
        """Count a step."""
        self.num_steps += 1
        self.num_failed_steps += failed
        self.num_failed_in_a_row = self.num_failed_in_a_row + 1 if failed else 0
        self.num_saved_block_reads += step.num_saved_block_reads
        self.draft_s += step.draft_s
        self.plan_s += step.plan_s
        self.execute_s += step.execute_s
        self.apply_s += step.apply_s
