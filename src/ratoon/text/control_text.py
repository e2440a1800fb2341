"""`ControlText`: finds what reads like a control token in a text."""

import re
from collections.abc import Iterable, Iterator


class ControlText:
    """Knows the names of a tokenizer's control tokens."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._lengths = sorted({len(name) for name in self._names}, reverse=True)
        first = "".join(sorted({name[0] for name in self._names}))
        self._first = re.compile(f"[{re.escape(first)}]" if first else "(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of each name from left to right, the longest at each place, as tokenizers do."""
        end = 0
        for match in self._first.finditer(text):
            start = match.start()
            if start >= end and (length := self._length_at(text, start)):
                end = start + length
                yield start, end

    def unfinished(self, text: str) -> int | None:
        """Return where a name begins that the text breaks off, space at its end aside; None if none does."""
        text = text.rstrip()
        for match in self._first.finditer(text, max(0, len(text) - max(self._lengths, default=0))):
            tail = text[match.start() :]
            if any(len(name) > len(tail) and name.startswith(tail) for name in self._names):
                return match.start()
        return None

    def _length_at(self, text: str, start: int) -> int:
        for length in self._lengths:
            if (name := text[start : start + length]) in self._names:
                return len(name)  # near the end of the text that is less than `length`
        return 0
