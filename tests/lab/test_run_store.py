import json
from pathlib import Path

import pytest

from ratoon.errors import LabError, UsageError
from ratoon.lab.run_store import RunStore


def test_samples_are_on_disk_as_soon_as_they_are_kept(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {"experiment": "pair"})
    store.append({"key": "a", "error": None})

    reader = RunStore.open(tmp_path / "run")

    assert reader.rows == [{"key": "a", "error": None}]
    assert reader.manifest["experiment"] == "pair"
    assert "started" in reader.manifest


def test_done_is_what_has_a_sample_that_did_not_fail(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {})
    store.append({"key": "a", "error": "gone"})
    assert not store.done("a")

    store.append({"key": "a", "error": None})
    assert store.done("a")
    assert not store.done("b")
    assert len(store.rows) == 2  # the failure is not forgotten


def test_a_second_run_does_not_overwrite_the_first(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", {})

    with pytest.raises(UsageError, match="holds a run already"):
        RunStore.create(tmp_path / "run", {})


def test_a_line_cut_off_by_a_crash_is_dropped_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", {})
    store.append({"key": "a", "error": None})
    with (tmp_path / "run" / "samples.jsonl").open("a") as file:
        file.write('{"key": "b", "err')

    assert [row["key"] for row in RunStore.open(tmp_path / "run").rows] == ["a"]
    resumed = RunStore.resume(tmp_path / "run")
    resumed.append({"key": "c", "error": None})

    assert [row["key"] for row in RunStore.open(tmp_path / "run").rows] == ["a", "c"]


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", {})
    (tmp_path / "run" / "samples.jsonl").write_text('{"key": \n{"key": "b"}\n')

    with pytest.raises(LabError, match="line 1 is not a sample"):
        RunStore.open(tmp_path / "run")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="holds no run"):
        RunStore.open(tmp_path)


def test_a_run_of_another_format_is_refused(tmp_path: Path) -> None:
    RunStore.create(tmp_path / "run", {})
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))

    with pytest.raises(LabError, match="format 99"):
        RunStore.open(tmp_path / "run")


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(LabError, match="cannot be written"):
        RunStore.create(tmp_path / "file" / "run", {})
