"""`ReasoningFormat`: how a family marks what its models think before they answer."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The texts around the reasoning."""

    name: str
    begin: str
    end: str


THINK = ReasoningFormat("think", "<think>", "</think>")
REASONING_FORMATS: Mapping[str, ReasoningFormat] = {THINK.name: THINK}


def reasoning_format_of(template: str) -> ReasoningFormat | None:
    """Return the format that a chat template speaks of, if any."""
    return next((form for form in REASONING_FORMATS.values() if form.end in template), None)
