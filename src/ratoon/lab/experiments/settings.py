"""Settings of experiments as data: documented where declared, written to `run.json`, read back."""

import math
from dataclasses import asdict, field
from typing import Any, Protocol

from ratoon.lab.bench import Bench


class Experiment(Protocol):
    """A frozen dataclass of settings that knows how to measure itself."""

    def measure(self, bench: Bench) -> None:
        """Measure what the bench's store does not hold yet. An interrupt may come at any moment."""
        ...


def setting(default: Any, doc: str, *, kind: type = int, choices: tuple[str, ...] = ()) -> Any:
    """Declare a setting with the line that the command line shows for it; `kind` is the type of one value."""
    return field(default=default, metadata={"doc": doc, "kind": kind, "choices": choices})


def to_json(experiment: Any) -> dict[str, Any]:
    """Return the settings as JSON values; infinity, which JSON has not, as `inf`."""
    return {name: _written(value) for name, value in asdict(experiment).items()}


def from_json(kind: type, values: dict[str, Any]) -> Any:
    """Return the experiment that `to_json` was given."""
    return kind(**{name: _read(value) for name, value in values.items()})


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return "inf" if value == math.inf else value


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_read(item) for item in value)
    return math.inf if value == "inf" else value
