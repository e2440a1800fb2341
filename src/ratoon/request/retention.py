"""`Retention`: a caller's hint that the beginning of a request will be asked for again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Retention:
    """The blocks of the first `num_tokens` tokens leave later than unmarked ones.

    The time runs for `seconds` from when the request gives its blocks back, anew with every request that
    brings a hint. Under pressure marked blocks go too, after all others.
    """

    num_tokens: int
    seconds: float
