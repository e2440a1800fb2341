from pathlib import Path

import pytest

from ratoon.util.atomic import atomic_file, atomic_folder


def fail_after(_: int, error: type[BaseException]) -> None:
    raise error


def test_a_file_appears_whole_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stands_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), atomic_file(path) as file:
        fail_after(file.write(b"half"), error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    with atomic_folder(path) as temporary:
        (temporary / "file").write_text("content")
        assert not path.exists()
    assert (path / "file").read_text() == "content"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_there_is_no_folder(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), atomic_folder(tmp_path / "folder") as temporary:
        fail_after((temporary / "file").write_text("half"), error)
    assert list(tmp_path.iterdir()) == []


def test_of_two_that_make_a_folder_the_first_wins(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    with atomic_folder(path) as slow:
        (slow / "file").write_text("slow")
        with atomic_folder(path) as quick:
            (quick / "file").write_text("quick")
    assert (path / "file").read_text() == "quick"
    assert list(tmp_path.iterdir()) == [path]
