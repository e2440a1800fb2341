"""What is learned while running: how often drafts are accepted, and what a step costs by its size."""

FIRST_RATE = 0.5
"""Acceptance rate that is assumed before any trial: high enough that there will be trials."""

PRIOR_TRIALS = 2.0
"""How many trials of its own the rate seen by others is worth."""

MEMORY = 200
"""Steps after which one is all but forgotten."""

PRIOR_TOKENS = 8.0
"""Until steps of several sizes were seen, so many tokens are taken to cost as much as a step itself."""

PRIOR_WEIGHT = 0.1
"""How much variance of the steps' sizes that first guess is worth."""

SHARE = 0.1
"""How far a size's own factor moves with each step of that size."""

FADE = 0.01
"""How far all factors return to 1 with each step, so that none outlives what it came from."""

RANGE = 0.6, 1.6
"""Factors that are believed; the machine may have done something else in a step beyond."""

TINY = 1e-9
"""Seconds, for a step of which nothing is known."""


class AcceptanceRate:
    """How often a kind of draft is accepted: a fading average over about `memory` trials.

    While a rate has few trials of its own it leans on `others`, which counts every trial too.
    """

    __slots__ = ("_accepted", "_keep", "_others", "_trials")

    def __init__(self, memory: int, others: "AcceptanceRate | None" = None) -> None:
        self._keep = 1 - 1 / memory
        self._others = others
        self._accepted = 0.0
        self._trials = 0.0

    @property
    def rate(self) -> float:
        """The chance that the next draft is accepted if those before it are."""
        expected = FIRST_RATE if self._others is None else self._others.rate
        return (self._accepted + PRIOR_TRIALS * expected) / (self._trials + PRIOR_TRIALS)

    def add(self, *, accepted: bool) -> None:
        """Count a trial, for the others too."""
        self._accepted = self._accepted * self._keep + accepted
        self._trials = self._trials * self._keep + 1
        if self._others is not None:
            self._others.add(accepted=accepted)


class StepCost:
    """A straight line through (tokens, seconds) of the last steps, and a factor for each size that was seen.

    The line is least squares, old steps counting less. The factors are for kernels, which take rows in tiles:
    a ninth row may cost as much as the eight before it, and a tenth nothing.
    """

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean_tokens = 0.0
        self._mean_seconds = 0.0
        self._variance = 0.0
        self._covariance = 0.0
        self._factors: dict[int, float] = {}

    def add(self, num_tokens: int, seconds: float) -> None:
        """Learn from a step."""
        self._weight = self._weight * (1 - 1 / MEMORY) + 1
        share = 1 / self._weight
        more_tokens = num_tokens - self._mean_tokens
        more_seconds = seconds - self._mean_seconds
        self._mean_tokens += share * more_tokens
        self._mean_seconds += share * more_seconds
        self._variance += share * ((1 - share) * more_tokens * more_tokens - self._variance)
        self._covariance += share * ((1 - share) * more_tokens * more_seconds - self._covariance)
        seen = min(max(seconds / max(self._line(num_tokens), TINY), RANGE[0]), RANGE[1])
        factor = self._factors.get(num_tokens, 1.0)
        self._factors = {size: old + FADE * (1 - old) for size, old in self._factors.items()}
        self._factors[num_tokens] = factor + SHARE * (seen - factor)

    def seconds(self, num_tokens: int) -> float:
        """Return what a step of so many tokens should take; more than 0."""
        return max(self._line(num_tokens), TINY) * self._factors.get(num_tokens, 1.0)

    def _line(self, num_tokens: int) -> float:
        guessed = self._mean_seconds / (self._mean_tokens + PRIOR_TOKENS)
        slope = (self._covariance + PRIOR_WEIGHT * guessed) / (self._variance + PRIOR_WEIGHT)
        most = self._mean_seconds / max(self._mean_tokens, 1)
        return self._mean_seconds + min(max(slope, 0), most) * (num_tokens - self._mean_tokens)
