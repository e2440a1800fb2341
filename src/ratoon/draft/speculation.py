"""`Speculation`: which guesses are worth a place in the next step.

A step costs something by itself and something per token (`StepCost`), a draft model some time per round, and
guesses of one kind for one request are right at some rate (`Odds`). Of the drafts of all requests, the
likeliest first, so many are taken as promise the most tokens per second; on a full batch, or where nothing
can be guessed, these are none. A request whose guesses do not pay is guessed for now and then only. What
guesses would have been worth is seen in any case, because the tokens come.
"""

import logging
from collections.abc import Sequence

from ratoon.draft.drafter import NO_GUESS, Drafter, Guess
from ratoon.draft.odds import Odds
from ratoon.draft.stats import DraftStats
from ratoon.draft.step_cost import StepCost
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta
from ratoon.step import StepPlan

PROBE_SHARE = 0.02
"""Share of the time that a draft model which does not pay may take to try again."""

REST_STEPS = 4
"""Steps after which free guesses that did not pay are looked at again."""

EDGE = 1.03
"""So much faster must drafts promise to be; handling them takes its time, too."""

REQUEST_MEMORY = 20
ENGINE_MEMORY = 200
"""Drafts over which a request's rate and everybody's are taken."""

_log = logging.getLogger(__name__)


class Speculation:
    """Used by the engine's core: `propose` before a step is planned, `learn` after it succeeded.

    `max_drafts` are verified for a request in one step at most.
    """

    def __init__(self, drafter: Drafter, max_drafts: int) -> None:
        self.stats = DraftStats()
        self.is_broken = False
        self._drafter = drafter
        self._max_drafts = max_drafts
        self._cost = StepCost()
        self._probe_s = 0.0  # below 0 where probing has taken more than its share
        self._is_probing = False
        self._odds_of_all: dict[int, Odds] = {}
        self._odds: dict[int, dict[int, Odds]] = {}
        self._guesses: dict[int, Guess] = {}
        self._resting: set[int] = set()
        self._num_rounds = 0

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        """Return drafts by request id. A drafter that raises is not asked again."""
        if self.is_broken:
            return {}
        try:
            return self._propose(requests)
        except Exception:
            _log.exception("Guessing failed; the engine goes on without.")
            self.is_broken = True
            self._guesses = {}
            return {}

    def reset_cache(self) -> None:
        """Let the drafter forget what it kept for requests to come."""
        self._drafter.reset_cache()

    def learn(self, plan: StepPlan, deltas: Sequence[RequestDelta], draft_s: float, execute_s: float) -> None:
        """See what became of the guesses, and what guessing them and computing the step took."""
        tokens = {delta.request_id: delta.token_ids for delta in deltas}
        for chunk in plan.chunks:
            new = tokens.get(chunk.request_id, ())
            self._judge(chunk.request_id, new)
            if chunk.num_drafts:
                self.stats.add(chunk.num_drafts, num_equal(chunk.token_ids[-chunk.num_drafts :], new))
        if all(chunk.sample and len(chunk.token_ids) == 1 + chunk.num_drafts for chunk in plan.chunks):
            self._cost.add(plan.num_tokens, execute_s)
        spent_s = draft_s if self._is_probing else 0
        self._probe_s = min(0.0, self._probe_s + PROBE_SHARE * execute_s - spent_s)

    def _propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        self._odds = {request.id: self._odds.get(request.id, {}) for request in requests}
        self._num_rounds += 1
        wishes = self._wishes(requests)
        guesses = self._drafter.propose(list(zip(requests, wishes, strict=True)))
        self._guesses = {request.id: guess for request, guess in zip(requests, guesses, strict=True)}
        counts = [len(guess.tokens) for guess in guesses]
        if self._drafter.is_free:
            rates = [
                self._odds_of(request_id, guess.kind).rate for request_id, guess in self._guesses.items()
            ]
            counts = self._num_paying(rates, counts)
            if self._num_rounds % REST_STEPS == 0:
                self._resting = {
                    request.id for request, count in zip(requests, counts, strict=True) if not count
                }
        return {
            request_id: guess.tokens[:count]
            for (request_id, guess), count in zip(self._guesses.items(), counts, strict=True)
        }

    def _wishes(self, requests: Sequence[Request]) -> list[int]:
        """Return how many tokens are to be guessed for each request."""
        most = [max(0, min(self._max_drafts, request.max_drafts)) for request in requests]
        if self._drafter.is_free:
            if self._num_rounds % REST_STEPS == 0:
                return most
            return [
                0 if request.id in self._resting else count
                for request, count in zip(requests, most, strict=True)
            ]
        counts = self._num_paying([self._odds_of(request.id, 0).rate for request in requests], most)
        self._is_probing = self._probe_s >= 0 and any(most) and not any(counts)
        if self._is_probing:
            counts[next(i for i, count in enumerate(most) if count)] = 1
        return counts

    def _num_paying(self, rates: Sequence[float], most: Sequence[int]) -> list[int]:
        """Return how many drafts of each request pay, up to those in `most`."""
        chances = [(rate**place, i) for i, rate in enumerate(rates) for place in range(1, most[i] + 1)]
        chances.sort(reverse=True)
        num_rows, num_expected = len(most), float(len(most))
        counts = [0] * num_rows
        round_sizes = [0] * (self._max_drafts + 1)  # requests with at least so many drafts
        draft_s = 0.0
        num_taken, best_speed = 0, EDGE * num_expected / self._cost.seconds(num_rows)
        for place, (chance, i) in enumerate(chances, 1):
            counts[i] += 1
            draft_s += self._more_to_guess(round_sizes, counts[i])
            num_expected += chance
            speed = num_expected / (self._cost.seconds(num_rows + place) + draft_s)
            if speed > best_speed:
                num_taken, best_speed = place, speed
        for _, i in chances[num_taken:]:
            counts[i] -= 1
        return counts

    def _more_to_guess(self, round_sizes: list[int], place: int) -> float:
        """Add a request to the round that guesses its draft at `place`; return the seconds that it adds."""
        size = round_sizes[place]
        round_sizes[place] += 1
        before_s = self._drafter.round_seconds(size) if size else 0.0
        return self._drafter.round_seconds(size + 1) - before_s

    def _judge(self, request_id: int, tokens: Sequence[int]) -> None:
        """Learn from the last guess as far as it can be told whether it was right."""
        guess = self._guesses.get(request_id, NO_GUESS)
        if guess.tokens and tokens:
            num_right = num_equal(guess.tokens, tokens)
            odds = self._odds_of(request_id, guess.kind)
            for _ in range(num_right):
                odds.add(right=True)
            if num_right < min(len(guess.tokens), len(tokens)):
                odds.add(right=False)

    def _odds_of(self, request_id: int, kind: int) -> Odds:
        own = self._odds[request_id]
        if kind not in own:
            of_all = self._odds_of_all.setdefault(kind, Odds(ENGINE_MEMORY))
            own[kind] = Odds(REQUEST_MEMORY, of_all)
        return own[kind]


def num_equal(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many tokens two sequences share before they part or one ends."""
    most = min(len(one), len(other))
    return next((place for place in range(most) if one[place] != other[place]), most)
