"""`StepCost`: what a step costs by the number of its tokens, learned from the steps themselves."""

MEMORY = 200
"""Steps after which one is all but forgotten."""

PRIOR_TOKENS = 8.0
"""Until steps of several sizes were seen, so many tokens are taken to cost as much as a step itself."""

PRIOR_WEIGHT = 0.1
"""How much variance of the steps' sizes that first guess is worth."""


class StepCost:
    """A straight line through (tokens, seconds) of the last steps: least squares, old ones count less."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._mean_tokens = 0.0
        self._mean_seconds = 0.0
        self._variance = 0.0
        self._covariance = 0.0

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

    @property
    def per_token(self) -> float:
        """Seconds by which a step grows with each token."""
        guessed = self._mean_seconds / (self._mean_tokens + PRIOR_TOKENS)
        slope = (self._covariance + PRIOR_WEIGHT * guessed) / (self._variance + PRIOR_WEIGHT)
        most = self._mean_seconds / max(self._mean_tokens, 1)
        return min(max(slope, 0), most)

    def seconds(self, num_tokens: int) -> float:
        """Return what a step of so many tokens should take."""
        return self._mean_seconds + self.per_token * (num_tokens - self._mean_tokens)
