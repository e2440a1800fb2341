"""From `StructuredOutputs` to a grammar as llguidance reads it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from ratoon.request.structured_outputs import StructuredOutputs

JSON_STYLE: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": '"\\bfnrt',
    "lenient": False,
    "coerce_one_of": False,
}
"""JSON as `json.dumps` and so the `tojson` of chat templates write it, with nothing of a schema passed over.

An answer that comes back as history is thus rendered to the very text that was generated, and a model that
has lost its way cannot fill its answer with blanks.
"""


def grammar_text(form: StructuredOutputs) -> str:
    """Return the grammar, not yet checked."""
    if form.json is not None:
        return _document(json_schema=_styled(json.loads(str(form.json))))
    if form.json_object:
        return _document(json_schema=_styled({"type": "object"}))
    if form.regex is not None:
        return _document(lark_grammar=f"start: /{between_slashes(form.regex)}/")
    if form.choice is not None:
        options = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in form.choice)
        return _document(lark_grammar=f"start: {options}")
    assert form.grammar is not None, "one form is given"
    return _document(lark_grammar=form.grammar)


def inline_json(schema: Mapping[str, Any] | bool) -> str:
    """Return a schema as a part of a Lark grammar."""
    return f"%json {json.dumps(_styled(schema), ensure_ascii=False)}"


def _styled(schema: Mapping[str, Any] | bool) -> Mapping[str, Any] | bool:
    """Return a schema with our style of JSON, whatever style it may name itself."""
    if schema is False:
        return False
    return {**({} if schema is True else schema), "x-guidance": JSON_STYLE}


def _document(**grammar: object) -> str:
    """Return the form in which a text is never mistaken for one of the other kinds."""
    return json.dumps({"grammars": [grammar]})


def between_slashes(regex: str) -> str:
    """Escape what would end a regular expression in Lark's notation, where it is not escaped already."""
    escaped = re.sub(r"\\.|/", lambda found: "\\/" if found[0] == "/" else found[0], regex, flags=re.DOTALL)
    return escaped.replace("\n", "\\n")
