"""From chat messages to the ids of a prompt, with what users wrote kept apart from what the template wrote.

A user who writes `<|im_end|>` must not end the message: text of control tokens within messages, tools
and documents stays text, while the template's own becomes control tokens. To tell the two apart after
rendering, a mark goes before each such text on its way into the template: a noncharacter of Unicode
that occurs nowhere else. Where nobody writes control tokens, and that is nearly always, there is no
mark and the prompt is encoded in one piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ratoon.errors import TextError
from ratoon.text.chat_template import ChatTemplate, Message
from ratoon.text.control_text import ControlText
from ratoon.text.tokenizer import Tokenizer

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
T = TypeVar("T")


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """Return the prompt's ids; arguments as `ChatTemplate.render` takes them. Raises `TextError` of some kind."""
    marks = _Marks(tokenizer.control_text, [messages, tools, documents, variables])
    rendered = template.render(
        marks.put(messages),
        add_generation_prompt=add_generation_prompt,
        tools=marks.put(tools),
        documents=marks.put(documents),
        variables=marks.put(variables),
    )
    if not marks.were_put:
        return tokenizer.encode(rendered, add_special=False, parse_special=True)
    ids: list[int] = []
    for piece, is_control in marks.take_out(rendered):
        if is_control:
            ids.append(tokenizer.control_ids[piece])
        else:
            ids += tokenizer.encode(piece, add_special=False, parse_special=False)
    return ids


class _Marks:
    """Puts one mark before everything in some values that reads, or could come to read, like a control token."""

    def __init__(self, control: ControlText, values: object) -> None:
        self._control = control
        text = "".join(_strings(values))
        self._mark = next((mark for mark in _NONCHARACTERS if mark not in text), "")
        if not self._mark:
            raise TextError("The messages use up all of Unicode's noncharacters.")
        self.were_put = False

    def put(self, value: T) -> T:
        """Return the value with every string in it marked."""
        return self._put(value)  # type: ignore[no-any-return]

    def take_out(self, rendered: str) -> Iterator[tuple[str, bool]]:
        """Yield the rendered text without marks: pieces of text, and between them the template's control tokens."""
        begun = 0
        for start, end in self._control.find(rendered):
            if not rendered.endswith(self._mark, 0, start):
                yield rendered[begun:start].replace(self._mark, ""), False
                yield rendered[start:end], True
                begun = end
        yield rendered[begun:].replace(self._mark, ""), False

    def _put(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._put_into(value)
        if isinstance(value, Mapping):
            return {self._put(key): self._put(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._put(inner) for inner in value]
        return value

    def _put_into(self, text: str) -> str:
        places = [start for start, _ in self._control.find(text)]
        # What one string breaks off, the next could continue, if the template joins them.
        unfinished = self._control.unfinished(text)
        if unfinished is not None:
            places.append(unfinished)
        for place in reversed(places):
            text = text[:place] + self._mark + text[place:]
        self.were_put |= bool(places)
        return text


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _strings(key)
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)
