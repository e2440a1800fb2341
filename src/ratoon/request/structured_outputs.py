"""`StructuredOutputs`: the form that an answer must have. Names as vLLM users know them.

What is given is kept as plain text, so that it can be compared, used as a key and sent to a runner. Whether
it is a grammar that can be followed is found out where it is compiled.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratoon.errors import InvalidParameterError

FORMS = ("json", "regex", "choice", "grammar", "json_object")
MAX_BYTES = 1 << 17
"""A longer schema or grammar would take long to compile."""


@dataclass(frozen=True, slots=True)
class StructuredOutputs:
    """Exactly one form is given. Raises `InvalidParameterError` naming the field.

    `json` is a JSON schema, as a text, a mapping or a truth value, kept as its JSON text. `regex` is a
    regular expression for the whole answer, without look-around and back-references. `choice` lists the
    possible answers. `grammar` is in Lark's notation, with the extensions of llguidance, and begins at the
    rule `start`. `json_object` asks for any JSON object.
    """

    json: str | Mapping[str, Any] | bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.json_object, bool):
            raise InvalidParameterError(f"json_object must be True or False, not {self.json_object!r}.")
        given = [name for name in FORMS if getattr(self, name) is not None]
        if not self.json_object:
            given.remove("json_object")
        if len(given) != 1:
            raise InvalidParameterError(
                f"structured_outputs needs exactly one of {', '.join(FORMS)}, "
                f"not {' and '.join(given) if given else 'none'}."
            )
        form = given[0]
        object.__setattr__(self, form, _normalised(form, getattr(self, form)))
        size = sum(len(text.encode()) for text in self.texts)
        if size > MAX_BYTES:
            raise InvalidParameterError(
                f"The {form} of structured_outputs has {size} bytes; the limit is {MAX_BYTES}."
            )

    @property
    def texts(self) -> tuple[str, ...]:
        """What was given, as texts: several for `choice`, none for `json_object`."""
        if self.choice is not None:
            return tuple(self.choice)
        return tuple(text for text in (self.json, self.regex, self.grammar) if isinstance(text, str))


def structured_outputs(value: object) -> StructuredOutputs | None:
    """Return what a caller gave as `SamplingParams.structured_outputs`: the value itself, or its fields."""
    if value is None or isinstance(value, StructuredOutputs):
        return value
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidParameterError(
            f"structured_outputs must be StructuredOutputs or a mapping, not {value!r}."
        )
    for name in value:
        if name not in FORMS:
            raise InvalidParameterError(
                f"structured_outputs has no field {name}.", hint=f"There are: {', '.join(FORMS)}."
            )
    return StructuredOutputs(**value)


def _normalised(form: str, value: object) -> object:
    if form == "json":
        return _schema_text(value)
    if form == "json_object":
        return True
    if form != "choice":
        return _checked(form, value)
    if not isinstance(value, tuple | list) or not value:
        raise InvalidParameterError(f"The choice of structured_outputs must be a list, not {value!r}.")
    return tuple(_checked("choice", choice) for choice in value)


def _checked(form: str, text: object) -> str:
    if not isinstance(text, str) or not text:
        raise InvalidParameterError(f"The {form} of structured_outputs must be a text, not {text!r}.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidParameterError(f"The {form} of structured_outputs has half a character in it.")
    return text


def _schema_text(schema: object) -> str:
    """Return a schema as JSON text. Order is kept: objects are written in the order of their properties."""
    try:
        if isinstance(schema, str):
            schema = json.loads(schema)
        if not isinstance(schema, Mapping | bool):
            raise TypeError("a JSON schema is an object or a truth value")
        return _checked("json", json.dumps(schema, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(f"The json of structured_outputs is not right: {error}.") from None
    except RecursionError:
        raise InvalidParameterError("The json of structured_outputs is nested too deeply.") from None
