"""`Result`: figures with their samples, and what they were measured on and with.

Names end in their unit. Rates (`tok/s`, `GOP/s`, `GB/s`) are better when they are higher, everything else
when it is lower.
"""

import json
import shlex
import statistics
import sys
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from ratoon.lab.machine import describe_machine, describe_versions

FORMAT = 1


@dataclass
class Result:
    """`samples` by name of the figure. Results of other `settings` cannot be compared."""

    settings: dict[str, Any]
    samples: dict[str, list[float]] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=describe_machine)
    versions: dict[str, str] = field(default_factory=describe_versions)
    command: str = field(default_factory=lambda: shlex.join(sys.argv))
    started: str = field(default_factory=lambda: datetime.now().astimezone().isoformat(timespec="seconds"))
    format: int = FORMAT

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file that `write` wrote. Raises `SystemExit` where it is none."""
        try:
            content = json.loads(path.read_text())
            found = cls(**content)
        except (OSError, ValueError, TypeError) as error:
            raise SystemExit(f"{path} is not a result: {error}") from None
        if found.format != FORMAT:
            raise SystemExit(f"{path} has format {found.format}; this reads {FORMAT}.")
        return found

    def write(self, path: Path) -> None:
        """Write a JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    def add(self, figures: dict[str, float]) -> None:
        """Add a sample to each of the figures."""
        for name, value in figures.items():
            self.samples.setdefault(name, []).append(value)

    def median(self, name: str) -> float:
        """Return the median of a figure's samples."""
        return statistics.median(self.samples[name])

    def table(self) -> str:
        """Return medians and ranges as a Markdown table."""
        lines = ["| figure | median | lowest - highest | samples |", "|---|---|---|---|"]
        for name, values in self.samples.items():
            spread = f"{min(values):.4g} - {max(values):.4g}"
            lines.append(f"| {name} | {self.median(name):.4g} | {spread} | {len(values)} |")
        return "\n".join(lines)
