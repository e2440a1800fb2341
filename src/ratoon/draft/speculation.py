"""`Speculation`: which guesses are verified in the next step.

A step costs something by itself and something per token (`StepCost`), a draft model some time per round, and
guesses of one kind for one request are accepted at some rate (`AcceptanceRate`). Of the drafts of all
requests, the likeliest first, so many are taken as promise the most tokens per second; on a full batch, or
where nothing can be guessed, these are none. A request whose guesses do not pay is guessed for only now and
then. What guesses would have been worth is seen in any case, because the tokens come.

A drafter that raises is left alone for a number of steps, which doubles with each failure in a row, and then
tried again.
"""

import logging
from collections.abc import Sequence

from ratoon.draft.drafter import NO_GUESS, Drafter, Guess
from ratoon.draft.estimates import AcceptanceRate, StepCost
from ratoon.draft.stats import DraftStats
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta
from ratoon.step import StepPlan

PROBE_SHARE = 0.02
"""Share of the time that a draft model which does not pay may take to try again."""

REST_STEPS = 4
"""Steps after which free guesses that did not pay are looked at again."""

MIN_SPEED_UP = 1.03
"""The gain that drafts must promise; handling them takes time, too."""

REQUEST_MEMORY = 20
ENGINE_MEMORY = 200
"""Drafts over which the acceptance rate of one request, and of all together, is taken."""

FIRST_PAUSE = 100
LONGEST_PAUSE = 100 * 2**7
"""Steps without guesses after a drafter's first failure, and the most after many in a row."""

_log = logging.getLogger(__name__)


class Speculation:
    """Used by the engine's core: `propose` before a step is planned, `learn` after it succeeded.

    `max_drafts` are verified for a request in one step at most.
    """

    def __init__(self, drafter: Drafter, max_drafts: int) -> None:
        self.stats = DraftStats()
        self._drafter = drafter
        self._max_drafts = max_drafts
        self._cost = StepCost()
        self._probe_s = 0.0  # below 0 where probing has taken more than its share
        self._is_probing = False
        self._rates_of_all: dict[int, AcceptanceRate] = {}
        self._rates: dict[int, dict[int, AcceptanceRate]] = {}
        self._guesses: dict[int, Guess] = {}
        self._resting: set[int] = set()
        self._num_rounds = 0
        self._next_pause = FIRST_PAUSE

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        """Return drafts by request id; none while a failure of the drafter is not long ago."""
        if self.stats.num_paused_steps:
            self.stats.num_paused_steps -= 1
            return {}
        try:
            drafts = self._propose(requests)
        except Exception:
            self._pause()
            return {}
        if any(drafts.values()):
            self._next_pause = FIRST_PAUSE
        return drafts

    def reset_cache(self) -> None:
        """Let the drafter forget what it kept for requests to come."""
        self._drafter.reset_cache()

    def learn(self, plan: StepPlan, deltas: Sequence[RequestDelta], draft_s: float, execute_s: float) -> None:
        """See what became of the guesses, and how long guessing them and computing the step took."""
        tokens = {delta.request_id: delta.token_ids for delta in deltas}
        for chunk in plan.chunks:
            new = tokens.get(chunk.request_id, ())
            self._count_trials(chunk.request_id, new)
            if chunk.num_drafts:
                self.stats.add(chunk.num_drafts, num_equal(chunk.token_ids[-chunk.num_drafts :], new))
        if all(chunk.sample and len(chunk.token_ids) == 1 + chunk.num_drafts for chunk in plan.chunks):
            self._cost.add(plan.num_tokens, execute_s)
        spent_s = draft_s if self._is_probing else 0
        self._probe_s = min(0.0, self._probe_s + PROBE_SHARE * execute_s - spent_s)

    def _pause(self) -> None:
        """Leave the drafter alone for a while; what it kept is dropped, since it may be half changed."""
        _log.exception("Guessing failed; the engine goes on without for %d steps.", self._next_pause)
        self.stats.num_failures += 1
        self.stats.num_paused_steps = self._next_pause
        self._next_pause = min(2 * self._next_pause, LONGEST_PAUSE)
        self._guesses = {}
        try:
            self._drafter.reset()
        except Exception:
            _log.exception("What the drafter kept could not be dropped.")

    def _propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        self._rates = {request.id: self._rates.get(request.id, {}) for request in requests}
        self._num_rounds += 1
        wanted = self._num_wanted(requests)
        guesses = self._drafter.propose(list(zip(requests, wanted, strict=True)))
        self._guesses = {request.id: guess for request, guess in zip(requests, guesses, strict=True)}
        counts = [len(guess.tokens) for guess in guesses]
        if self._drafter.is_free:
            rates = [self._rate(request_id, guess.kind).rate for request_id, guess in self._guesses.items()]
            counts = self._num_paying(rates, counts)
            if self._num_rounds % REST_STEPS == 0:
                self._resting = {
                    request.id for request, count in zip(requests, counts, strict=True) if not count
                }
        return {
            request_id: guess.tokens[:count]
            for (request_id, guess), count in zip(self._guesses.items(), counts, strict=True)
        }

    def _num_wanted(self, requests: Sequence[Request]) -> list[int]:
        """Return how many tokens are to be guessed for each request."""
        most = [max(0, min(self._max_drafts, request.max_drafts)) for request in requests]
        if self._drafter.is_free:
            if self._num_rounds % REST_STEPS == 0:
                return most
            return [
                0 if request.id in self._resting else count
                for request, count in zip(requests, most, strict=True)
            ]
        counts = self._num_paying([self._rate(request.id, 0).rate for request in requests], most)
        self._is_probing = self._probe_s >= 0 and any(most) and not any(counts)
        if self._is_probing:
            counts[next(i for i, count in enumerate(most) if count)] = 1
        return counts

    def _num_paying(self, rates: Sequence[float], most: Sequence[int]) -> list[int]:
        """Return how many drafts of each request pay, up to those in `most`."""
        chances = [(rate**number, i) for i, rate in enumerate(rates) for number in range(1, most[i] + 1)]
        chances.sort(reverse=True)
        num_rows, num_expected = len(most), float(len(most))
        counts = [0] * num_rows
        round_sizes = [0] * (self._max_drafts + 1)  # requests with at least so many drafts
        draft_s = 0.0
        num_taken, best_speed = 0, MIN_SPEED_UP * num_expected / self._cost.seconds(num_rows)
        for num_drafts, (chance, i) in enumerate(chances, 1):
            counts[i] += 1
            draft_s += self._added_draft_seconds(round_sizes, counts[i])
            num_expected += chance
            speed = num_expected / (self._cost.seconds(num_rows + num_drafts) + draft_s)
            if speed > best_speed:
                num_taken, best_speed = num_drafts, speed
        for _, i in chances[num_taken:]:
            counts[i] -= 1
        return counts

    def _added_draft_seconds(self, round_sizes: list[int], number: int) -> float:
        """Add a request to the round that guesses its draft of this number; return the time that it adds."""
        size = round_sizes[number]
        round_sizes[number] += 1
        before_s = self._drafter.round_seconds(size) if size else 0.0
        return self._drafter.round_seconds(size + 1) - before_s

    def _count_trials(self, request_id: int, tokens: Sequence[int]) -> None:
        """Learn from the last guess, as far as the new tokens tell whether it was right."""
        guess = self._guesses.get(request_id, NO_GUESS)
        if guess.tokens and tokens:
            num_right = num_equal(guess.tokens, tokens)
            rate = self._rate(request_id, guess.kind)
            for _ in range(num_right):
                rate.add(accepted=True)
            if num_right < min(len(guess.tokens), len(tokens)):
                rate.add(accepted=False)

    def _rate(self, request_id: int, kind: int) -> AcceptanceRate:
        own = self._rates[request_id]
        if kind not in own:
            of_all = self._rates_of_all.setdefault(kind, AcceptanceRate(ENGINE_MEMORY))
            own[kind] = AcceptanceRate(REQUEST_MEMORY, of_all)
        return own[kind]


def num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common from the start."""
    most = min(len(one), len(other))
    return next((index for index in range(most) if one[index] != other[index]), most)
