"""What comes out of an answer, in order."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningText:
    """More of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentText:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A tool call begins; its arguments follow. `index` counts the answer's calls from 0."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of a call's arguments: JSON text, exactly as the model wrote it."""

    index: int
    text: str


Event = ReasoningText | ContentText | CallBegun | CallArguments
