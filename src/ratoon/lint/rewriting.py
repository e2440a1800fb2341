"""Ways to rewrite a prompt so that one kind of difference to another is gone.

Each returns the pieces without what varies: of two prompts that differ in this alone, the results are
equal.
"""

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

from ratoon.lint.prompt import Piece, Role

Pieces = tuple[Piece, ...]
Rewriting = Callable[[Pieces], Pieces]

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tue|wed|thu|fri|sat|sun"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s*[ap]\.?m\.?\b)?"
_ZONE = r"(?:\s*(?:z\b|utc\b|gmt\b|[+-]\d{2}:?\d{2}\b))?"
_DATE = (
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}"
    r"|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}"
    rf"|{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?\s+{_MONTH},?\s+\d{{4}}"
)
MOMENT = re.compile(
    rf"(?:\b(?:{_DAY}),?\s+)?(?:\b(?:{_DATE})(?:(?:[T ,]|\s+at\s+)\s*{_TIME}{_ZONE})?|\b{_TIME}{_ZONE})"
    r"|\b1[5-9]\d{8}(?:\d{3}){0,2}(?:\.\d+)?\b",  # seconds, milliseconds or microseconds since 1970
    re.IGNORECASE,
)
ID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"
    r"|\b[a-z]{2,12}[_-](?=[0-9a-z]*\d)(?=[0-9a-z]*[a-z])[0-9a-z]{8,}\b"
    r"|\b(?=[0-9A-Z]*\d)(?=[0-9A-Z]*[A-Z])[0-9A-Z]{20,}\b"
    r"|\b\d{9,}\b",
    re.IGNORECASE,
)
_THINKING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>\s*|\Z)", re.DOTALL)
_LOOK_ALIKES = str.maketrans("\u2018\u2019\u201c\u201d\u2013\u2014\u2212\u00a0", "''\"\"--- ")


def without_moments(pieces: Pieces) -> Pieces:
    """Take out dates and times."""
    return _each_text(pieces, lambda text: MOMENT.sub("\x04", text))


def without_ids(pieces: Pieces) -> Pieces:
    """Take out what looks drawn at random: UUIDs, long hexadecimal numbers, prefixed and long decimal ids."""
    return _each_text(pieces, lambda text: ID.sub("\x05", text))


def without_spacing(pieces: Pieces) -> Pieces:
    """Make every run of white space one blank, and none at a text's ends."""
    return _each_text(pieces, lambda text: " ".join(text.split()))


def without_variants(pieces: Pieces) -> Pieces:
    """Write every character in one of its Unicode forms, with plain quotes, dashes and blanks."""
    return _each_text(pieces, lambda text: unicodedata.normalize("NFKC", text.translate(_LOOK_ALIKES)))


def with_sorted_keys(pieces: Pieces) -> Pieces:
    """Write JSON with its keys in order and one spacing: tools, and texts that are JSON as a whole."""
    return _each_text(pieces, _sorted_json)


def with_sorted_tools(pieces: Pieces) -> Pieces:
    """Put the tools in order."""
    tools = sorted((piece for piece in pieces if piece.role is Role.TOOLS), key=lambda piece: piece.text)
    return (*tools, *(piece for piece in pieces if piece.role is not Role.TOOLS))


def without_reasoning(pieces: Pieces) -> Pieces:
    """Take out what a model thought before it answered."""
    kept = (piece for piece in pieces if piece.role is not Role.REASONING)
    return _each_text(tuple(kept), lambda text: _THINKING.sub("", text).lstrip("\n"))


def _each_text(pieces: Pieces, rewrite: Callable[[str], str]) -> Pieces:
    return tuple(Piece(piece.role, rewrite(piece.text)) for piece in pieces)


def _sorted_json(text: str) -> str:
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.dumps(_unwrapped(json.loads(text)), sort_keys=True, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _unwrapped(value: Any) -> Any:
    """Return JSON with the JSON that its strings hold, as a tool call's arguments are sent, read as well."""
    if isinstance(value, dict):
        return {key: _unwrapped(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_unwrapped(each) for each in value]
    return _sorted_json(value) if isinstance(value, str) else value
