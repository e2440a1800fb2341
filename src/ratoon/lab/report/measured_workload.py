"""`MeasuredWorkload`: the samples of one workload, with what became of their tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from ratoon.lab.prefix_model import WholePrompt
from ratoon.lab.report.samples import good_samples
from ratoon.lab.report.token_fates import TokenFate, token_fates
from ratoon.lab.run_store import Row, RunStore


@dataclass(frozen=True, slots=True)
class MeasuredWorkload:
    """One workload as far as it was measured."""

    name: str
    fates: list[TokenFate]
    end: Row | None
    """The row that closes it, None where it was interrupted."""
    num_failed: int
    """Requests that failed."""

    def total(self, name: str) -> int:
        """Return the sum of a fate's field over all requests."""
        return sum(getattr(fate, name) for fate in self.fates)

    @property
    def prompt_tokens(self) -> int:
        """All prompt tokens."""
        return sum(fate.sample.answer.prompt_tokens for fate in self.fates)

    @property
    def tells(self) -> bool:
        """Whether the server tells each answer's cached tokens; without that, only the ideal is known."""
        return all(fate.sample.answer.cached_tokens is not None for fate in self.fates)

    @property
    def counted_hits(self) -> int | None:
        """Return the hits by the server's counters."""
        return self.end["counted"]["hits"] if self.end and self.end["counted"] else None

    @property
    def state(self) -> str:
        """Return whether all of it was measured."""
        if self.num_failed:
            return f"{self.num_failed} failed"
        if self.end:
            return "whole"
        return "interrupted" if self.fates else "not run"

    def ttft_s(self, *, warm: bool) -> list[float]:
        """Return the TTFT of all warm, or all cold, requests."""
        return [fate.sample.answer.ttft_s for fate in self.fates if fate.warm == warm]


def measured_workloads(run: RunStore, names: Sequence[str]) -> list[MeasuredWorkload]:
    """Return what was measured of each of these workloads, in its last attempt; perhaps nothing."""
    found = []
    for name in names:
        rows = [row for row in run.rows if row["cell"]["workload"] == name]
        last = max((row["attempt"] for row in rows), default=0)
        rows = [row for row in rows if row["attempt"] == last]
        end = next((row for row in rows if row["role"] == "end" and row["error"] is None), None)
        samples = good_samples(row for row in rows if row["role"] == "request")
        block_size = end["block_size"] if end else int(run.manifest["server"]["block size"])
        whole_prompt: WholePrompt = end["whole_prompt"] if end else "last token"
        fates = token_fates(samples, block_size, whole_prompt)
        found.append(MeasuredWorkload(name, fates, end, sum(row["error"] is not None for row in rows)))
    return found
