"""`JsonSpan`: where a JSON object that comes in pieces ends."""


class JsonSpan:
    """Counts brackets outside of strings, of which `depth` are open when it is made."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._is_in_string = False
        self._is_escaped = False
        self.is_closed = False

    def feed(self, text: str) -> int:
        """Return how many characters of a text belong to the object."""
        for place, character in enumerate(text, 1):
            if self._is_in_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif character == "\\":
                    self._is_escaped = True
                elif character == '"':
                    self._is_in_string = False
            elif character == '"':
                self._is_in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self.is_closed = True
                    return place
        return len(text)
