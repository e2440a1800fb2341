"""`Body`: JSON objects as clients send them, checked strictly.

A known field has exactly its type: no number in quotes, no truth value for a number. Unknown fields are kept
aside and answered with a warning.
"""

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """A JSON object with known fields checked strictly and unknown ones kept aside."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    accepted_in_silence: ClassVar[frozenset[str]] = frozenset()
    """Unknown fields that need no warning."""

    def unknown_fields(self) -> list[str]:
        """Return the paths of the fields that have no meaning here, in this object and those inside it."""
        names = [name for name in self.model_extra or {} if name not in self.accepted_in_silence]
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Body):
                names += [f"{name}.{inner}" for inner in value.unknown_fields()]
        return names


def utf8_text(value: str) -> str:
    """Return the text.

    Raises `ValueError` for half a surrogate pair, which JSON can carry and UTF-8 cannot.
    """
    value.encode()
    return value
