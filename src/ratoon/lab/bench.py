"""`Bench`: what every experiment works at: servers, the run's folder, and asking with everything noted."""

import math
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
        self.store.append(labels | {"answer": answer.to_json(), "counted": counted, "error": answer.error})
        return answer

    def fail(self, error: LabError, **labels: Any) -> None:
        """Keep a failed sample: the cell is shown as failed, not left out."""
        self.store.append(labels | {"answer": None, "counted": None, "error": error.message})


def warm_up(target: Target, source: TokenSource) -> None:
    """Run one unrelated request: the first in a new process is slow for reasons of its own."""
    compute(target, source.tokens("warm-up", WARM_UP_TOKENS), 4)


def fill_pool(target: Target, source: TokenSource, label: str, prompt_len: int) -> None:
    """Have unrelated prompts computed until they have taken every block of the pool."""
    if target.pool_tokens is None:
        raise LabError(
            "The server does not tell how large its KV pool is, so its cache cannot be evicted on purpose."
        )
    blocks_each = max(1, prompt_len // target.block_size)  # only full blocks stay
    for index in range(math.ceil(target.pool_tokens / (blocks_each * target.block_size))):
        compute(target, source.tokens(f"{label}/{index}", blocks_each * target.block_size))


def compute(target: Target, prompt: Sequence[int], max_tokens: int = 1) -> None:
    """Have a prompt computed without measuring it. Raises `LabError` where that fails."""
    answer = target.client.complete(prompt, max_tokens)
    if answer.error is not None:
        raise LabError(f"A request that prepares the measured ones failed: {answer.error}.")
