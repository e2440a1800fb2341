"""`AnswerReader`: from an answer's text, as it comes, to reasoning, content and tool calls.

Text that could become a marker is held back until that is decided, so no part of a marker is ever content.
Blanks before a call and between calls belong to the format, and are dropped.
"""

from collections.abc import Collection, Sequence

from ratoon.chat.call_reader import CallReader
from ratoon.chat.events import CallArguments, CallBegun, ContentText, Event, ReasoningText
from ratoon.chat.reasoning import ReasoningFormat
from ratoon.chat.tool_format import ToolFormat

UNREADABLE_CALL = "The model began a tool call that could not be read; it is in the text."


class AnswerReader:
    """Reads one answer. `names` are the functions that it may call, `tool_format` how it would.

    Without a format there are no calls, without a `reasoning` format no reasoning. If the prompt has opened
    the reasoning already, it `is_reasoning` from the start.
    """

    def __init__(
        self,
        names: Collection[str] = (),
        tool_format: ToolFormat | None = None,
        reasoning: ReasoningFormat | None = None,
        *,
        is_reasoning: bool = False,
    ) -> None:
        self._names = names
        self._format = tool_format if names else None
        self._reasoning = reasoning
        self._buffer = ""
        self._read = self._reasoning_step if is_reasoning and reasoning else self._start_step
        self._events: list[Event] = []
        self._is_final = False
        self._has_content = False
        self._call: CallReader | None = None
        self._call_opening = ""
        self._call_id = ""
        self.num_calls = 0
        self.warning: str | None = None

    def feed(self, text: str) -> list[Event]:
        """Take in more text; return what is certain now."""
        self._buffer += text
        while self._read():
            pass
        events, self._events = self._events, []
        return events

    def finish(self) -> list[Event]:
        """Return what was held back, once no more text comes."""
        self._is_final = True
        return self.feed("")

    def _start_step(self) -> bool:
        """Decide whether the answer begins with reasoning."""
        text = self._buffer.lstrip()
        if self._reasoning is not None:
            if text.startswith(self._reasoning.begin):
                self._buffer = text.removeprefix(self._reasoning.begin)
                self._read = self._reasoning_step
                return True
            if self._reasoning.begin.startswith(text) and not self._is_final:
                return False
        self._read = self._text_step
        return True

    def _reasoning_step(self) -> bool:
        assert self._reasoning is not None, "its end is looked for"
        before, marker, rest = self._cut([self._reasoning.end])
        if before:
            self._events.append(ReasoningText(before))
        self._buffer = rest
        if marker is None:
            return False
        self._read = self._after_reasoning_step
        return True

    def _after_reasoning_step(self) -> bool:
        """Drop the blanks between reasoning and answer."""
        self._buffer = self._buffer.lstrip()
        if self._buffer:
            self._read = self._text_step
        return bool(self._buffer)

    def _text_step(self) -> bool:
        if self._format is None:
            self._tell(self._buffer)
            self._buffer = ""
            return False
        if not self._format.marker and not self._has_content and self._begins_bare():
            return self._read == self._call_step
        before, marker, rest = self._cut(self._format.markers)
        text = before.rstrip()
        if marker is not None:
            self._tell(text)
            self._begin_call(before[len(text) :] + marker, rest)
            return True
        if self._is_final and not (self.num_calls and not text):
            text = before
        self._tell(text)
        self._buffer = before[len(text) :] + rest
        return False

    def _begins_bare(self) -> bool:
        """Whether the answer is a call without a marker, or has only blanks up to now."""
        text = self._buffer.lstrip()
        if text.startswith("{"):
            self._begin_call(self._buffer[: len(self._buffer) - len(text)], text)
            return True
        return not text and not self._is_final

    def _begin_call(self, opening: str, rest: str) -> None:
        self._call = CallReader(self._names)
        self._call_opening = opening
        self._buffer = rest
        self._read = self._call_step

    def _call_step(self) -> bool:
        assert self._format is not None, "there are calls"
        assert self._call is not None, "one has begun"
        call = self._call
        if not call.text:
            text = self._buffer.lstrip()
            if not text and not self._is_final:
                return False
            if self._format.is_list and text.startswith("["):
                self._call_opening += self._buffer[: len(self._buffer) - len(text) + 1]
                self._buffer = text[1:]
                return True
        had_name = call.name is not None
        text, end, rest = self._buffer, None, ""
        if not call.is_json(text):  # else a closing marker may be part of a string
            closing = "" if self._format.is_list else self._format.after.strip()
            text, end, rest = self._cut([closing] if closing else [])
        call.feed(text)
        if not call.is_whole and (end is not None or self._is_final):
            call.finish()
        self._tell_call(call, is_new=not had_name)
        self._buffer = call.rest + (end or "") + rest
        if call.has_failed:
            self._fail(call.text + (end or "") + rest)
        elif call.is_whole:
            self._read = self._after_call_step
        return call.has_failed or call.is_whole

    def _tell_call(self, call: CallReader, *, is_new: bool) -> None:
        assert self._format is not None, "there are calls"
        if call.name is None:
            return
        if is_new:
            self._events.append(CallBegun(self.num_calls, self._format.new_id(), call.name))
            self.num_calls += 1
        if arguments := call.take_arguments():
            self._events.append(CallArguments(self.num_calls - 1, arguments))

    def _fail(self, text: str) -> None:
        """Give what looked like a call back as text; nothing after it is a call."""
        if self._call_opening.strip():
            self.warning = UNREADABLE_CALL
        self._buffer = self._call_opening + text
        self._format = None
        self._read = self._text_step

    def _after_call_step(self) -> bool:
        """Pass over the end of a call; another may follow."""
        assert self._format is not None, "there was a call"
        text = self._buffer.lstrip()
        end, between = self._format.after.strip(), self._format.between.strip()
        for passed in filter(None, (end, between)):
            if not self._is_final and text != passed and passed.startswith(text):
                return False
            if text.startswith(passed):
                is_end = passed == end
                self._buffer = text.removeprefix(passed)
                self._read = self._text_step
                if not is_end:
                    self._begin_call("", self._buffer)
                return True
        self._read = self._text_step
        return True

    def _tell(self, text: str) -> None:
        if text:
            self._has_content = True
            self._events.append(ContentText(text))

    def _cut(self, markers: Sequence[str]) -> tuple[str, str | None, str]:
        """Divide what is there at the first marker: text, marker, rest.

        Without one the rest is what could still become one.
        """
        places = [(place, marker) for marker in markers if (place := self._buffer.find(marker)) >= 0]
        if places:
            place, marker = min(places)
            return self._buffer[:place], marker, self._buffer[place + len(marker) :]
        held = 0 if self._is_final else max((_overlap(self._buffer, marker) for marker in markers), default=0)
        end = len(self._buffer) - held
        return self._buffer[:end], None, self._buffer[end:]


def _overlap(text: str, marker: str) -> int:
    """Return how long the longest end of a text is that begins a marker."""
    longest = min(len(text), len(marker) - 1)
    return next((length for length in range(longest, 0, -1) if text.endswith(marker[:length])), 0)
