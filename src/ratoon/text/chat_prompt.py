"""From chat messages to the ids of a prompt, with what users wrote kept apart from what the template wrote.

A user who writes `<|im_end|>` must not end the message: text of control tokens within messages, tools
and documents stays text, while the template's own becomes control tokens. To tell the two apart after
rendering, a mark goes before each such text on its way into the template: a noncharacter of Unicode
that occurs nowhere else. Where nobody writes control tokens, and that is nearly always, there is no
mark and the prompt is encoded in one piece.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ratoon.errors import ChatTemplateError, TextError
from ratoon.text.chat_template import ChatTemplate
from ratoon.text.control_text import ControlText
from ratoon.text.messages import Message
from ratoon.text.tokenizer import Tokenizer

_NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
T = TypeVar("T")


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    documents: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, Any] | None = None,
) -> list[int]:
    """Return the prompt's ids. Arguments and errors are those of `ChatTemplate.render` and `encode`.

    With `continue_final_message` the prompt ends with the last message's text, for the model to go on with.
    """
    messages = template.prepared(messages)  # first, since JSON text may hide a control token in escapes
    marks = _Marks(tokenizer.control_text, [messages, tools, documents, variables])
    marked = marks.put(messages)
    rendered = template.render(
        marked,
        add_generation_prompt=add_generation_prompt,
        tools=marks.put(tools),
        documents=marks.put(documents),
        variables=marks.put(variables),
    )
    if continue_final_message:
        rendered = _up_to(rendered, _last_text(marked[-1]["content"]))
    if not marks.were_put:
        return tokenizer.encode(rendered, add_special=False, parse_special=True)
    ids: list[int] = []
    for piece, is_control in marks.take_out(rendered):
        if is_control:
            ids.append(tokenizer.control_ids[piece])
        else:
            ids += tokenizer.encode(piece, add_special=False, parse_special=False)
    return ids


def _last_text(content: str | Sequence[Mapping[str, str]]) -> str:
    if isinstance(content, str):
        return content
    return content[-1]["text"] if content else ""


def _up_to(rendered: str, content: str) -> str:
    """Return a conversation up to the content of its last message, which the template may have trimmed."""
    text = content.strip()
    start = rendered.rfind(text)
    if not text or start < 0:
        raise ChatTemplateError("The final message cannot be continued: the template does not show its text.")
    end = start + len(text)
    blanks = content[len(content.rstrip()) :]
    return rendered[: end + len(blanks)] if rendered.startswith(blanks, end) else rendered[:end]


class _Marks:
    """Puts a mark before whatever in some values reads, or may come to read, like a control token."""

    def __init__(self, control: ControlText, values: object) -> None:
        self._control = control
        text = "".join(_strings(values))
        unused = (mark for mark in _NONCHARACTERS if mark not in text and _escaped(mark) not in text)
        self._mark = next(unused, "")
        if not self._mark:
            raise TextError("The messages use up all of Unicode's noncharacters.")
        self.were_put = False

    def put(self, value: T) -> T:
        """Return the value with every string in it marked."""
        return self._put(value)  # type: ignore[no-any-return]

    def take_out(self, rendered: str) -> Iterator[tuple[str, bool]]:
        """Yield the template's control tokens and, without marks, the text between them."""
        rendered = rendered.replace(_escaped(self._mark), self._mark)
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


def _escaped(mark: str) -> str:
    """Return the mark as `repr` and JSON in ASCII write it, which templates do to tools and documents."""
    return mark.encode("unicode_escape").decode()


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
