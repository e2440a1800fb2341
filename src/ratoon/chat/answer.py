"""`Answer`: all that an answer consists of, put together from its events."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ratoon.chat.events import CallArguments, CallBegun, ContentText, Event, ReasoningText


@dataclass(slots=True)
class Call:
    """A whole tool call; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Answer:
    """Grows by `add`."""

    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, events: Iterable[Event]) -> None:
        """Take in what came newly."""
        for event in events:
            match event:
                case ReasoningText(text):
                    self.reasoning += text
                case ContentText(text):
                    self.content += text
                case CallBegun(_, call_id, name):
                    self.calls.append(Call(call_id, name))
                case CallArguments(index, text):
                    self.calls[index].arguments += text
