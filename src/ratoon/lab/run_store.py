"""`RunStore`: the folder of one run, written as it is measured.

`run.json`       what was to be done, where and with what; written once, before anything is measured
`samples.jsonl`  one line per raw sample, flushed as soon as it exists, so an interrupt loses nothing measured
`server-*.log`   what the servers said
`report.html`, `report.json`, `tables/`: made from the first two files alone, at any time

A sample carries the `key` of the piece of work it belongs to. A piece of work with a sample that did not fail
is done and is not done again when the run is resumed; failed samples stay and are shown.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from ratoon.errors import LabError, UsageError
from ratoon.util.atomic import atomic_file

Row = dict[str, Any]
"""One raw sample: JSON values, with `key` and, where it failed, `error`."""

SAMPLES = "samples.jsonl"

FORMAT = 1
"""Of `run.json` and `samples.jsonl`; another number is refused."""


class RunStore:
    """One run's folder. It alone writes there while the run is on."""

    def __init__(self, folder: Path, manifest: dict[str, Any], rows: list[Row]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.rows = rows

    @classmethod
    def create(cls, folder: Path, manifest: dict[str, Any]) -> Self:
        """Begin a run. Raises `UsageError` where the folder holds one already."""
        if (folder / "run.json").exists():
            raise UsageError(
                f"{folder} holds a run already.",
                hint=f"Go on with it by --resume {folder}, or name another folder with --out.",
            )
        manifest = {"format": FORMAT, "started": datetime.now(UTC).isoformat(timespec="seconds")} | manifest
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(folder / "run.json") as file:
                file.write((json.dumps(manifest, indent=1, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            raise LabError(f"{folder} cannot be written: {error.strerror}.") from error
        return cls(folder, manifest, [])

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Read a run, finished or not. A last line that has no end yet is not a sample.

        Raises `LabError` where there is no run, or one of another format.
        """
        try:
            manifest = json.loads((folder / "run.json").read_text())
        except (OSError, ValueError) as error:
            raise LabError(
                f"{folder} holds no run.", hint="Name the folder that `ratoon lab` wrote; it has a run.json."
            ) from error
        if manifest.get("format") != FORMAT:
            raise LabError(
                f"{folder} was written in format {manifest.get('format')}; this Ratoon reads {FORMAT}."
            )
        return cls(folder, manifest, _read_rows(folder / SAMPLES))

    @classmethod
    def resume(cls, folder: Path) -> Self:
        """Read a run in order to go on with it. A last line that a crash cut off is removed."""
        store = cls.open(folder)
        if (folder / SAMPLES).exists():
            os.truncate(folder / SAMPLES, len(_whole_lines(folder / SAMPLES)))
        return store

    def append(self, row: Row) -> None:
        """Keep one sample."""
        self.rows.append(row)
        line = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
        with (self.folder / SAMPLES).open("a") as file:
            file.write(line)

    def done(self, key: str) -> bool:
        """Whether the piece of work has a sample that did not fail."""
        return any(row["key"] == key and row.get("error") is None for row in self.rows)


def _whole_lines(path: Path) -> bytes:
    content = path.read_bytes()
    return content[: content.rfind(b"\n") + 1]


def _read_rows(path: Path) -> list[Row]:
    rows: list[Row] = []
    for number, line in enumerate(_whole_lines(path).splitlines() if path.exists() else (), 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise LabError(f"{path}, line {number} is not a sample.") from error
    return rows
