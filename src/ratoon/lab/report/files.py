"""The files of a report: the page, `report.json`, and a CSV per table.

Made again from the samples at any time.
"""

import csv
import io
import json
from pathlib import Path
from typing import Any

from ratoon.lab.report.page import render
from ratoon.lab.report.report import Report
from ratoon.lab.run_store import RunStore
from ratoon.util.atomic import atomic_file


def write_files(report: Report, run: RunStore) -> Path:
    """Write everything into the run's folder and return the page's path."""
    tables = run.folder / "tables"
    tables.mkdir(exist_ok=True)
    for table in report.tables:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.plain_columns())
        writer.writerows(table.plain_rows())
        _write(tables / f"{table.name}.csv", text.getvalue())
    _write(run.folder / "report.json", json.dumps(as_json(report, run), indent=1, ensure_ascii=False) + "\n")
    page = run.folder / "report.html"
    _write(page, render(report, run.manifest))
    return page


def as_json(report: Report, run: RunStore) -> dict[str, Any]:
    """Return the report without its plots, and the conditions of its run."""
    return {
        "title": report.title,
        "findings": list(report.findings),
        "failures": list(report.failures),
        "tables": [
            {
                "name": table.name,
                "caption": table.caption,
                "columns": list(table.plain_columns()),
                "rows": table.plain_rows(),
            }
            for table in report.tables
        ],
        "run": run.manifest,
    }


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as file:
        file.write(text.encode())
