"""The pieces of work, and how each one's figure is taken from the times of its tokens.

Every repetition has prompts of its own, so nothing is cached by accident; what is meant to be cached is run
first, untimed.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

TokenTimes = list[list[float]]


@dataclass(frozen=True)
class Call:
    """Prompts that are handed over at once."""

    prompts: list[list[int]]
    max_tokens: int


@dataclass(frozen=True)
class Row:
    """A line of the table; `name` ends in the unit."""

    name: str
    more_is_better: bool = False


@dataclass(frozen=True)
class Work:
    """`calls` makes the calls of one repetition; the last one is timed, and `figure` reads its token times.

    With `fresh`, a process is started for it, and its start and its largest memory are figures, too.
    """

    name: str
    unit: str
    calls: Callable[[random.Random], list[Call]]
    figure: Callable[[TokenTimes], float]
    fresh: bool = False

    @property
    def rows(self) -> tuple[Row, ...]:
        """Lines of the table that this work fills: the figure; start and memory where it is `fresh`."""
        row = Row(f"{self.name}, {self.unit}", more_is_better=self.unit == "tok/s")
        return (row, START, PEAK_MEMORY) if self.fresh else (row,)


START = Row("process start to ready, s")
PEAK_MEMORY = Row("peak memory of a process that does only the cold burst, MB")


def ids(rng: random.Random, count: int) -> list[int]:
    """Return token ids that every model of the comparison has and none treats specially."""
    return [rng.randrange(100, 49000) for _ in range(count)]


def decode_rate(times: TokenTimes) -> float:
    """Tokens per second from the moment when every sequence has its first token."""
    start = max(t[0] for t in times)
    return sum(sum(x > start for x in t) for t in times) / (max(t[-1] for t in times) - start)


def end(times: TokenTimes) -> float:
    """Seconds until the last token of all."""
    return max(t[-1] for t in times)


def prefill(length: int) -> Work:
    """One cold prompt, one token."""
    return Work(
        f"cold prefill {length}",
        "tok/s",
        lambda rng: [Call([ids(rng, length)], 1)],
        lambda times: length / times[0][0],
    )


def decode(batch: int, context: int, shared: bool = False) -> Work:
    """Decode `batch` sequences; `shared` gives all of them one prompt but for its last token."""

    def calls(rng: random.Random) -> list[Call]:
        if not shared:
            return [Call([ids(rng, context) for _ in range(batch)], 48)]
        prefix = ids(rng, context - 1)
        return [Call([[*prefix, *ids(rng, 1)] for _ in range(batch)], 48)]

    suffix = " shared" if shared else ""
    return Work(f"decode batch {batch}, context {context}{suffix}", "tok/s", calls, decode_rate)


def warm_ttft(rng: random.Random) -> list[Call]:
    """2,048 tokens known, 16 new ones."""
    prefix = ids(rng, 2048)
    return [Call([prefix + ids(rng, 16)], 1), Call([prefix + ids(rng, 16)], 1)]


def burst(primed: bool) -> Callable[[random.Random], list[Call]]:
    """16 prompts of 1,024 shared and 32 own tokens, at once, 32 tokens out."""

    def calls(rng: random.Random) -> list[Call]:
        prefix = ids(rng, 1024)
        all_at_once = Call([prefix + ids(rng, 32) for _ in range(16)], 32)
        return [Call([prefix + ids(rng, 32)], 1), all_at_once] if primed else [all_at_once]

    return calls


WORK = (
    prefill(512),
    prefill(1024),
    prefill(2048),
    Work("TTFT, 2,048 cached + 16 new", "s", warm_ttft, lambda times: times[0][0]),
    decode(1, 128),
    decode(1, 1024),
    decode(8, 128),
    decode(8, 1024),
    decode(8, 1024, shared=True),
    Work("burst of 16, cold", "s", burst(primed=False), end, fresh=True),
    Work("burst of 16, primed", "s", burst(primed=True), end),
)
