"""`Odds`: how often a kind of draft is right."""

FIRST_GUESS = 0.5
"""Held before anything was seen: hopeful, so that something is seen."""

WEIGHT = 2.0
"""So many trials is what others saw worth."""


class Odds:
    """A fading average over about `memory` trials. While there are few it leans on `others`."""

    __slots__ = ("_keep", "_others", "_right", "_tried")

    def __init__(self, memory: int, others: "Odds | None" = None) -> None:
        self._keep = 1 - 1 / memory
        self._others = others
        self._right = 0.0
        self._tried = 0.0

    @property
    def rate(self) -> float:
        """The chance that the next draft is right if those before it are."""
        expected = FIRST_GUESS if self._others is None else self._others.rate
        return (self._right + WEIGHT * expected) / (self._tried + WEIGHT)

    def add(self, *, right: bool) -> None:
        """Count a trial, for the others too."""
        self._right = self._right * self._keep + right
        self._tried = self._tried * self._keep + 1
        if self._others is not None:
            self._others.add(right=right)
