"""Progress of a download that others do: by how much its folder has grown."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ratoon.util.progress import Progress

_INTERVAL_S = 0.1


@contextmanager
def watched(folder: Path, total_bytes: int, stage: str, progress: Progress) -> Iterator[None]:
    """Report the most that the folder's files took so far, from a thread of its own, until the body ends."""
    ended = threading.Event()

    def report() -> None:
        most = 0
        while not ended.wait(_INTERVAL_S):
            most = max(most, min(_size(folder), total_bytes))
            progress(stage, most, total_bytes)

    reporter = threading.Thread(target=report, daemon=True)
    reporter.start()
    try:
        yield
    finally:
        ended.set()
        reporter.join()
    progress(stage, total_bytes, total_bytes)


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):  # passes over folders that are gone
        for name in names:
            with suppress(OSError):  # files come and go under the walk
                total += os.stat(os.path.join(parent, name)).st_size
    return total
