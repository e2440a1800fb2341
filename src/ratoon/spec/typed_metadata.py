"""`Metadata`: a model's metadata, read with its types checked."""

from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from ratoon.errors import CorruptCheckpointError, UnsupportedModelError

_ABSURD = 1 << 27
"""No size of a model comes near it."""
_INFINITE = 1e300


class Metadata:
    """Key-values of one model under one prefix. A null is the same as an absent key."""

    def __init__(self, values: Mapping[str, object], model: Path, prefix: str = "") -> None:
        self._values = values
        self._model = model
        self._prefix = prefix

    def get(self, key: str) -> object:
        """Return whatever is there, or None."""
        return self._values.get(self._prefix + key)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number of at least 0."""
        value = self._or_default(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.corrupt(f"{self._prefix}{key} is {value!r}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """Return a whole number above 0 that memory may be allocated by."""
        value = self.integer(key, default)
        if not 0 < value <= _ABSURD:
            self.corrupt(f"{self._prefix}{key} is {value}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number of at least 0."""
        value = self._or_default(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _INFINITE:
            self.corrupt(f"{self._prefix}{key} is {value!r}")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0."""
        value = self.number(key, default)
        if not value:
            self.corrupt(f"{self._prefix}{key} is 0")
        return value

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """Return a list of so many finite numbers above 0."""
        values = self.get(key)
        if not isinstance(values, list) or len(values) != count:
            self.corrupt(f"{self._prefix}{key} is not a list of {count} numbers")
        return tuple(Metadata({key: value}, self._model).positive(key) for value in values)

    def table(self, key: str) -> "Metadata":
        """Return the settings under a key; none where it is absent."""
        value = self.get(key) or {}
        if not isinstance(value, dict):
            self.corrupt(f"{self._prefix}{key} is not a table")
        return Metadata(value, self._model)

    def corrupt(self, what: str) -> NoReturn:
        """Raise `CorruptCheckpointError`: the model contradicts itself."""
        raise CorruptCheckpointError(f"{self._model} cannot be right: {what}.")

    def unsupported(self, what: str) -> NoReturn:
        """Raise `UnsupportedModelError`: the model needs what is not implemented."""
        raise UnsupportedModelError(f"{self._model} has {what}, which is not implemented.")

    def _or_default(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is None and default is None:
            self.corrupt(f"it lacks {self._prefix}{key}")
        return default if value is None else value
