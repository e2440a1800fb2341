"""Progress of long work: who reports it, and how a terminal shows it.

Rooms that take long accept a `Progress` and call it; they know nothing of terminals. Where the standard error
stream is a terminal, `TerminalProgress` draws one bar per stage with `tqdm`, whose only home is this file.
"""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self

if TYPE_CHECKING:
    from tqdm import tqdm

Progress = Callable[[str, int, int], None]
"""Called, perhaps often, as `progress(stage, done, total)`: a few words, and counts in units of the stage."""

MANY = 10_000
"""Counts above this are bytes and are shown as 92.9M."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Say nothing."""


class TerminalProgress:
    """A `Progress` that draws bars on stderr, and nothing where that is no terminal or it is not `enabled`.

    A bar appears after `delay_s` and disappears when its stage is done, at the latest when the context ends.
    """

    def __init__(self, *, enabled: bool = True, delay_s: float = 0.2) -> None:
        self._enabled = enabled and sys.stderr.isatty()
        self._delay_s = delay_s
        self._stage: str | None = None
        self._bar: tqdm[Never] | None = None

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar of this stage."""
        if not self._enabled:
            return
        if stage != self._stage:
            self.close()
            self._stage = stage
            from tqdm import tqdm  # costs a start without a terminal nothing

            self._bar = tqdm(
                desc=stage,
                total=total,
                unit="",
                unit_scale=total > MANY,
                leave=False,
                file=sys.stderr,
                delay=self._delay_s,
            )
        if self._bar is not None:
            self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Clear the bar."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
