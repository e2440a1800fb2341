"""`ReuseTimes`: after how long blocks of a class are used again, learned from what was seen.

Blocks that have not come back yet, or were forgotten, count as alive up to their age and no further, as in
survival analysis; without them everything would seem to come back soon.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence

STEPS_PER_OCTAVE = 4
EDGES = (0.0, *(2 ** (step / STEPS_PER_OCTAVE) for step in range(14 * STEPS_PER_OCTAVE + 1)))
"""Beginnings of the age classes: a quarter of an octave each, from one second to four and a half hours."""
NUM_AGES = len(EDGES)
NUM_SAMPLES = 20_000
PRIOR = 30
"""Blocks of the average class that are mixed into each, so that a rare one does not jump to conclusions."""


def age_class(age_s: float) -> int:
    """Return the number of the age class."""
    return bisect_right(EDGES, age_s) - 1


class ReuseTimes:
    """Follows a sample of the blocks by key. `worth` is valid until `learn` is called again."""

    def __init__(self, num_classes: int, num_followed: int) -> None:
        self.worth: list[list[float]] = []
        self._share = min(1.0, NUM_SAMPLES / num_followed) * (1 << 16)
        self._alive: OrderedDict[bytes, tuple[float, int]] = OrderedDict()
        self._returned = [[0] * NUM_AGES for _ in range(num_classes)]
        self._lost = [[0] * NUM_AGES for _ in range(num_classes)]

    def see(self, key: bytes, kind: int, now: float) -> None:
        """Note that a block of that class was used."""
        if int.from_bytes(key[:2], "big") >= self._share:
            return
        before = self._alive.pop(key, None)
        if before is not None:
            self._returned[before[1]][age_class(now - before[0])] += 1
        self._alive[key] = now, kind
        if len(self._alive) > NUM_SAMPLES:
            since, lost = self._alive.popitem(last=False)[1]
            self._lost[lost][age_class(now - since)] += 1

    def learn(self, now: float) -> None:
        """Work `worth` out anew: by class and age, the most hits per second that keeping a block can bring.

        The maximum is over the moments at which one would give the block up (Gittins' index): a block that
        comes back after a minute or never is worth more at fifty seconds than when it is fresh.
        """
        ended = [list(ages) for ages in self._lost]
        for since, kind in self._alive.values():
            ended[kind][age_class(now - since)] += 1
        all_returned = [sum(ages) for ages in zip(*self._returned, strict=True)]
        all_ended = [sum(ages) for ages in zip(*ended, strict=True)]
        average = _hazard(all_returned, all_ended, [0.0] * NUM_AGES, 1e-9)
        self.worth = [
            _best_rates(_hazard(returned, lost, average, PRIOR))
            for returned, lost in zip(self._returned, ended, strict=True)
        ]


def _hazard(
    returned: Sequence[int], ended: Sequence[int], prior: Sequence[float], weight: float
) -> list[float]:
    """Return for each age the share of the blocks alive at it that come back before the next."""
    hazard = [0.0] * NUM_AGES
    alive = 0.0
    for age in reversed(range(NUM_AGES)):
        at_risk = alive + returned[age] + ended[age] / 2
        hazard[age] = (returned[age] + weight * prior[age]) / (at_risk + weight)
        alive += returned[age] + ended[age]
    return hazard


def _best_rates(hazard: Sequence[float]) -> list[float]:
    """Return for each age the best ratio of expected hits to expected seconds, over all ends."""
    best = [0.0] * NUM_AGES
    for age in range(NUM_AGES - 1):
        surviving, hits, seconds = 1.0, 0.0, 0.0
        for later in range(age, NUM_AGES - 1):
            part = 0.5 if later == age else 1.0  # on average it stands in the middle of its age class
            returning = surviving * min(1.0, hazard[later] * part)
            hits += returning
            seconds += (surviving - returning / 2) * (EDGES[later + 1] - EDGES[later]) * part
            surviving -= returning
            best[age] = max(best[age], hits / seconds)
    return best
