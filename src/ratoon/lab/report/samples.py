"""Reading a run's rows: which count, which failed, and the numbers in them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ratoon.lab.answer import Answer
from ratoon.lab.report.report import DASH, join_reasons
from ratoon.lab.run_store import Row


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured request that did not fail."""

    row: Row
    answer: Answer

    @classmethod
    def of(cls, row: Row) -> Self:
        """Read a row."""
        return cls(row, Answer.from_json(row["answer"]))

    def __getitem__(self, name: str) -> Any:
        return self.row[name]

    @property
    def hit_tokens(self) -> int | None:
        """Prompt tokens found in the cache: from the counters, or else as the answer tells."""
        counted = self.row.get("counted")
        return counted["hits"] if counted is not None else self.answer.cached_tokens

    @property
    def contradicts_itself(self) -> bool:
        """Whether counters and answer disagree: somebody else used the server, or one is wrong."""
        counted, told = self.row.get("counted"), self.answer.cached_tokens
        return counted is not None and told is not None and counted["hits"] != told

    @property
    def as_expected(self) -> bool:
        """Whether the hit is the one worked out from the token ids."""
        return self.hit_tokens == self.row["expected_tokens"] and not self.contradicts_itself


def good_samples(rows: Iterable[Row]) -> list[Sample]:
    """Return what did not fail, one sample per key: the last, where a piece of work was done again."""
    return [Sample.of(row) for row in {row["key"]: row for row in rows if row.get("error") is None}.values()]


def failures(rows: Iterable[Row], name: Callable[[dict[str, Any]], str]) -> tuple[str, ...]:
    """Return a line per cell and reason for everything that failed, mended later or not."""
    return join_reasons(
        [f"{name(row['cell'])}: {row['error']}" for row in rows if row.get("error") is not None]
    )


def numbers(samples: Iterable[Sample], value: Callable[[Answer], float | None]) -> list[float]:
    """Return one value per sample, without those that have none."""
    return [number for sample in samples if (number := value(sample.answer)) is not None]


def all_gaps_ms(samples: Iterable[Sample]) -> list[float]:
    """Return every inter-token gap of all samples, in milliseconds."""
    return [gap * 1e3 for sample in samples for gap in sample.answer.itl_s]


def spread(values: Sequence[int]) -> str:
    """Return whole numbers as one text: `1,712`, or `0 to 1,712` where they differ."""
    if not values:
        return DASH
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
