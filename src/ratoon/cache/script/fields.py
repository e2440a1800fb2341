"""`Fields`: a JSON object read strictly, field by field."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


class FieldError(Exception):
    """A JSON value is not what it should be; the message completes the sentence '<field>: ...'."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """A JSON object that gives the field `name` twice."""

    name: str


def object_of(pairs: Sequence[tuple[str, object]]) -> dict[str, object] | Ambiguous:
    """Return a JSON object, for `json.loads` to call with the object's fields as they stand."""
    fields: dict[str, object] = {}
    for name, value in pairs:
        if name in fields:
            return Ambiguous(name)
        fields[name] = value
    return fields


class Fields:
    """Takes fields out of a JSON object; `finish` refuses the rest. `FieldError` names the one at fault."""

    def __init__(self, value: object) -> None:
        if isinstance(value, Ambiguous):
            raise FieldError(f"`{value.name}` stands there twice")
        if not isinstance(value, dict):
            raise FieldError("must be a JSON object")
        self._fields = dict(value)

    def required(self, name: str, read: Callable[[object], T]) -> T:
        """Read a field that must be there."""
        if name not in self._fields:
            raise FieldError(f"`{name}` is missing")
        try:
            return read(self._fields.pop(name))
        except FieldError as error:
            raise FieldError(f"`{name}` {error}") from None

    def optional(self, name: str, read: Callable[[object], T], default: T) -> T:
        """Read a field that may be left out."""
        return self.required(name, read) if name in self._fields else default

    def finish(self) -> None:
        """Refuse fields that were not read."""
        if self._fields:
            raise FieldError(f"`{next(iter(self._fields))}` is not a field here")


def integer(low: int, high: int) -> Callable[[object], int]:
    """Return a reader of whole numbers from `low` to `high`."""

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise FieldError(f"must be a whole number from {low} to {high}")
        return value

    return read


def anything(value: object) -> object:
    """Take a value as it is, to be read later."""
    return value


def boolean(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise FieldError("must be true or false")
    return value


def text(value: object) -> str:
    """Read a string that is not empty and can be written as UTF-8 (JSON can name half a surrogate pair)."""
    if not isinstance(value, str) or not value:
        raise FieldError("must be a string that is not empty")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise FieldError("must be a string without lone surrogates")
    return value


def hexadecimal(value: object) -> bytes:
    """Read bytes written as pairs of hexadecimal digits."""
    try:
        return bytes.fromhex(text(value))
    except ValueError:
        raise FieldError("must be pairs of hexadecimal digits") from None


def array_of(read: Callable[[object], T]) -> Callable[[object], list[T]]:
    """Return a reader of lists whose items `read` takes."""

    def read_all(value: object) -> list[T]:
        if not isinstance(value, list):
            raise FieldError("must be a list")
        items = []
        for index, item in enumerate(value):
            try:
                items.append(read(item))
            except FieldError as error:
                raise FieldError(f"item {index} {error}") from None
        return items

    return read_all
