"""`Speculation`: which guesses are worth a place in the next step.

A step costs something by itself and something per token (`StepCost`), a draft model some time per draft, and
guesses of one kind for one request are right at some rate (`Odds`). Drafts are taken, the likeliest first,
while they raise the number of tokens to be expected per second; on a full batch, or where nothing can be
guessed, these are none. What free guesses would have been worth is seen in any case, because the tokens
come; guesses that cost time are tried again every `PROBE_STEPS`.
"""

import logging
from collections.abc import Sequence
from itertools import takewhile

from ratoon.draft.drafter import NO_GUESS, Drafter, Guess
from ratoon.draft.odds import Odds
from ratoon.draft.stats import DraftStats
from ratoon.draft.step_cost import StepCost
from ratoon.request.request import Request
from ratoon.sched.delta import RequestDelta
from ratoon.step import StepPlan

PROBE_STEPS = 32
"""Steps after which a draft model that did not pay is asked again."""

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
        self._draft_s = 0.0
        self._odds_of_all: dict[int, Odds] = {}
        self._odds: dict[int, dict[int, Odds]] = {}
        self._guesses: dict[int, Guess] = {}
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
        num_drafts = 0
        for chunk in plan.chunks:
            new = tokens.get(chunk.request_id, ())
            self._judge(chunk.request_id, new)
            if chunk.num_drafts:
                num_drafts += chunk.num_drafts
                self.stats.add(chunk.num_drafts, num_equal(chunk.token_ids[-chunk.num_drafts :], new))
        if all(chunk.sample and len(chunk.token_ids) == 1 + chunk.num_drafts for chunk in plan.chunks):
            self._cost.add(plan.num_tokens, execute_s)
        if num_drafts and not self._drafter.is_free:
            share = 0.1 if self._draft_s else 1
            self._draft_s += share * (draft_s / num_drafts - self._draft_s)

    def _propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        self._odds = {request.id: self._odds.get(request.id, {}) for request in requests}
        self._num_rounds += 1
        wishes = [max(0, min(self._max_drafts, request.max_drafts)) for request in requests]
        if not self._drafter.is_free:
            probe = 1 if self._num_rounds % PROBE_STEPS == 0 else 0
            rates = [self._odds_of(request.id, 0).rate for request in requests]
            pays = self._num_paying(rates, wishes)
            wishes = [min(wish, max(count, probe)) for wish, count in zip(wishes, pays, strict=True)]
        guesses = self._drafter.propose(list(zip(requests, wishes, strict=True)))
        self._guesses = {request.id: guess for request, guess in zip(requests, guesses, strict=True)}
        counts = [len(guess.tokens) for guess in guesses]
        if self._drafter.is_free:
            rates = [
                self._odds_of(request_id, guess.kind).rate for request_id, guess in self._guesses.items()
            ]
            counts = self._num_paying(rates, counts)
        return {
            request_id: guess.tokens[:count]
            for (request_id, guess), count in zip(self._guesses.items(), counts, strict=True)
        }

    def _num_paying(self, rates: Sequence[float], most: Sequence[int]) -> list[int]:
        """Return how many drafts of each request pay, up to those in `most`."""
        chances = [(rate**place, i) for i, rate in enumerate(rates) for place in range(1, most[i] + 1)]
        counts = [0] * len(most)
        num_expected = float(len(most))
        seconds = self._cost.seconds(len(most))
        more_seconds = self._cost.per_token + self._draft_s
        for chance, i in sorted(chances, reverse=True):
            if chance * seconds < more_seconds * num_expected:
                break
            counts[i] += 1
            num_expected += chance
            seconds += more_seconds
        return counts

    def _judge(self, request_id: int, tokens: Sequence[int]) -> None:
        """Learn from the last guess as far as it can be told whether it was right."""
        guess = self._guesses.get(request_id, NO_GUESS)
        num_right = num_equal(guess.tokens, tokens)
        if guess.tokens and tokens:
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
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
