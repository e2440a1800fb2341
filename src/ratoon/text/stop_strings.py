"""`StopStrings`: ending a text at the first of some strings, while it comes in pieces."""

from collections.abc import Sequence


class StopStrings:
    """Lets text through up to the first stop string, and holds back only what could still become one.

    The first is the one that ends first, and of those that end together the longest. Where the pieces are
    cut makes no difference. Each character costs one step per stop string (Knuth, Morris and Pratt).
    A piece that `may_end` nothing lets stop strings pass that end in it, not those that only begin there.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        assert all(stops), "an empty stop string would stop everything"
        self._stops = [(stop, _borders(stop)) for stop in stops]
        self._reached = [0] * len(stops)  # how much of each stop string the text ends with
        self._include = include
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str, *, may_end: bool = True) -> str:
        """Take a piece and return what may be shown now; nothing more after a match."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        for place, character in enumerate(text):
            self._advance(character, may_end)
            if self.matched is not None:
                whole = self._held + text[: place + 1]
                self._held = ""
                return whole if self._include else whole[: len(whole) - len(self.matched)]
        whole = self._held + text
        shown = len(whole) - max(self._reached)
        self._held = whole[shown:]
        return whole[:shown]

    def flush(self) -> str:
        """Return what was held back in vain, once no more text comes."""
        held, self._held = self._held, ""
        return held

    def _advance(self, character: str, may_end: bool) -> None:
        for number, (stop, borders) in enumerate(self._stops):
            reached = self._reached[number]
            while reached and stop[reached] != character:
                reached = borders[reached - 1]
            reached += stop[reached] == character
            if reached == len(stop):
                if may_end and len(stop) > len(self.matched or ""):
                    self.matched = stop
                reached = borders[-1]  # it may begin again within itself
            self._reached[number] = reached


def _borders(stop: str) -> list[int]:
    """Return for each beginning of the string how long its longest proper beginning is that also ends it."""
    borders = [0] * len(stop)
    for end in range(1, len(stop)):
        border = borders[end - 1]
        while border and stop[border] != stop[end]:
            border = borders[border - 1]
        borders[end] = border + (stop[border] == stop[end])
    return borders
