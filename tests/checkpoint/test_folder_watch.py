import threading
from pathlib import Path

import pytest

from ratoon.checkpoint.folder_watch import watched


def test_growth_is_reported_while_others_write(tmp_path: Path) -> None:
    grown = threading.Event()
    calls: list[tuple[str, int, int]] = []

    def progress(stage: str, done: int, total: int) -> None:
        calls.append((stage, done, total))
        if done == 3:
            grown.set()

    with watched(tmp_path, 10, "downloading", progress):
        (tmp_path / "inner").mkdir()
        (tmp_path / "inner/file").write_bytes(b"abc")
        assert grown.wait(timeout=10)
    assert calls[-1] == ("downloading", 10, 10)


def test_never_more_than_the_total_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    reported = threading.Event()
    calls: list[int] = []

    def progress(stage: str, done: int, total: int) -> None:
        calls.append(done)
        reported.set()

    with watched(tmp_path, 10, "downloading", progress):
        assert reported.wait(timeout=10)
    assert set(calls) == {10}


def test_a_failed_download_is_not_reported_as_done(tmp_path: Path) -> None:
    calls: list[int] = []
    with (
        pytest.raises(KeyboardInterrupt),
        watched(tmp_path, 10, "downloading", lambda stage, done, total: calls.append(done)),
    ):
        raise KeyboardInterrupt
    assert 10 not in calls
