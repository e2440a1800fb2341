"""`CallReader`: one tool call from the text that comes after its opening.

The name and the beginning of the arguments are told as soon as they are certain, the arguments as they come.
A call whose parts come in another order, or that is written like a call in Python, is told when it is whole.
"""

import ast
import json
import re
from collections.abc import Collection
from typing import Any

from ratoon.chat.json_span import JsonSpan

_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)', re.DOTALL
)
_BARE_HEAD = re.compile(r"\s*([\w.-]+)\s*(?:\[ARGS\])?\s*(?=\{)")


class CallReader:
    """Reads up to the end of a call. `names` are the functions that may be called.

    After each `feed`, `name` is known or None, `take_arguments` returns what came of the arguments, and
    `rest` is what came after the call once it `is_whole`. Where `has_failed`, it is no call; `text` is all
    that was fed.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._span: JsonSpan | None = None
        self._tail: JsonSpan | None = JsonSpan(depth=1)  # none after a name that stands outside of the JSON
        self._pending = ""
        self._arguments = ""
        self.text = ""
        self.name: str | None = None
        self.is_whole = False
        self.has_failed = False
        self.rest = ""

    def feed(self, text: str) -> None:
        """Take in more text."""
        self.text += text
        self._pending += text
        if self._span is None:
            self._read_head()
        if self._span is not None and not self.is_whole:
            self._read_arguments()

    def is_json(self, more: str) -> bool:
        """Whether what comes is JSON, given more text."""
        return self._span is not None or (self.text + more).lstrip().startswith("{")

    def finish(self) -> None:
        """Note that nothing more comes."""
        if self.name is None and not self.has_failed:
            self._read_whole(self.text)

    def take_arguments(self) -> str:
        """Return the arguments' text that came since the last time."""
        taken, self._arguments = self._arguments, ""
        return taken

    def _read_head(self) -> None:
        head = _HEAD.match(self._pending)
        bare = None if head else _BARE_HEAD.match(self._pending)
        if head is None and bare is None:
            self._read_unordered()
            return
        found = head or bare
        assert found is not None, "one of them"
        name = json.loads(found[1], strict=False) if head else found[1]
        if name not in self._names:
            self.has_failed = True
            return
        self.name = name
        if bare is not None:
            self._tail = None
        self._span = JsonSpan()
        self._pending = self._pending[found.end() :]

    def _read_unordered(self) -> None:
        """Look for a whole object where it does not begin with the name."""
        start = len(self._pending) - len(self._pending.lstrip())
        if self._pending[start : start + 1] != "{":
            return
        span = JsonSpan()
        end = start + span.feed(self._pending[start:])
        if span.is_closed:
            self.rest = self._pending[end:]
            self._read_whole(self._pending[:end])

    def _read_arguments(self) -> None:
        assert self._span is not None, "the head was read"
        if not self._span.is_closed:
            end = self._span.feed(self._pending)
            self._arguments += self._pending[:end]
            self._pending = self._pending[end:]
        if self._span.is_closed:
            end = 0 if self._tail is None else self._tail.feed(self._pending)
            self.rest = self._pending[end:]
            self._pending = ""
            self.is_whole = self._tail is None or self._tail.is_closed

    def _read_whole(self, text: str) -> None:
        found = _json_call(text) or _python_call(text)
        if found is None or found[0] not in self._names:
            self.has_failed = True
            return
        self.name = found[0]
        self._arguments = json.dumps(found[1], ensure_ascii=False)
        self.is_whole = True


def _json_call(text: str) -> tuple[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    return (value["name"], arguments) if isinstance(arguments, dict) else None


def _python_call(text: str) -> tuple[str, Any] | None:
    """Read `f(a=1)`, alone, printed or in a list of one, with literals as arguments."""
    try:
        node: ast.expr = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.List) and len(node.elts) == 1:
            node = node.elts[0]
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and len(node.args) == 1:
            node = node.args[0]
        if not isinstance(node, ast.Call) or node.args:
            return None
        arguments = {word.arg: ast.literal_eval(word.value) for word in node.keywords if word.arg}
        json.dumps(arguments, allow_nan=False)
        return (ast.unparse(node.func), arguments)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
