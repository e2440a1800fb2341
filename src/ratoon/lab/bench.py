"""`Bench`: what every experiment works at: servers, the run's folder, and asking with everything noted."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ratoon.errors import LabError
from ratoon.lab.answer import Answer
from ratoon.lab.run_store import RunStore
from ratoon.lab.target import Servers, Target
from ratoon.lab.token_source import TokenSource
from ratoon.util.progress import Progress

WARM_UP_TOKENS = 64
"""Length of the warm-up prompt: enough to touch every weight, unrelated to anything measured."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Servers to measure, a folder to keep samples in, and somebody to tell how far it is."""

    servers: Servers
    store: RunStore
    progress: Progress

    def ask(
        self,
        target: Target,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        salt: str | None = None,
        api_key: str | None = None,
        **labels: Any,
    ) -> Answer:
        """Ask one request alone, with the cache counters read before and after, and keep the sample."""
        counted = None
        before = target.counters()
        answer = target.client.complete(prompt, max_tokens, salt=salt, api_key=api_key)
        after = target.counters()
        if before is not None and after is not None:
            counted = asdict(after.since(before))
        self.store.append(
            labels | {"answer": answer.to_json(), "counted": counted, "error": answer.error}
        )
        return answer

    def fail(self, error: LabError, **labels: Any) -> None:
        """Keep a failed sample: the cell is shown as failed, not left out."""
        self.store.append(labels | {"answer": None, "counted": None, "error": error.message})


def warm_up(target: Target, source: TokenSource) -> None:
    """Run one unrelated request, so that the first measured one does not pay for a process that just started.

    Raises `LabError` where the server does not answer it: then there is nothing to measure.
    """
    answer = target.client.complete(source.tokens("warm-up", WARM_UP_TOKENS), 4)
    if answer.error is not None:
        raise LabError(f"The warm-up request failed: {answer.error}.")
