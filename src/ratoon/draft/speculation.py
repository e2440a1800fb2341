"""`Speculation`: which guesses are worth a place in the next step.

A step costs something by itself and something per token (`StepCost`), a draft model some time per draft, and
a request's guesses are right at some rate (`Odds`). Drafts are taken, the likeliest first, while they raise
the number of tokens to be expected per second; on a full batch or a text that cannot be guessed these
are none. What free guesses would have been worth is seen in any case, because the tokens come; guesses that
cost time are tried again every `PROBE_STEPS`.
"""

import logging
from collections.abc import Sequence

from ratoon.draft.drafter import Drafter
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
        self._odds_of_all = Odds(ENGINE_MEMORY)
        self._odds: dict[int, Odds] = {}
        self._guesses: dict[int, Sequence[int]] = {}
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
            guesses = self._guesses.get(chunk.request_id, ())
            num_right = self._judge(chunk.request_id, guesses, new)
            if chunk.num_drafts:
                self.stats.add(chunk.num_drafts, min(num_right, chunk.num_drafts))
                num_drafts += chunk.num_drafts
        if all(chunk.sample and len(chunk.token_ids) == 1 + chunk.num_drafts for chunk in plan.chunks):
            self._cost.add(plan.num_tokens, execute_s)
        if num_drafts and not self._drafter.is_free:
            share = 0.1 if self._draft_s else 1
            self._draft_s += share * (draft_s / num_drafts - self._draft_s)

    def _propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        self._odds = {
            request.id: self._odds.get(request.id) or Odds(REQUEST_MEMORY, self._odds_of_all)
            for request in requests
        }
        self._num_rounds += 1
        wishes = [max(0, min(self._max_drafts, request.max_drafts)) for request in requests]
        if not self._drafter.is_free:
            probes = [min(1, wish) if self._num_rounds % PROBE_STEPS == 0 else 0 for wish in wishes]
            wishes = list(map(max, self._worth_verifying(wishes), probes))
        guesses = self._drafter.propose(list(zip(requests, wishes, strict=True)))
        self._guesses = {request.id: guess for request, guess in zip(requests, guesses, strict=True)}
        counts = list(map(len, guesses))
        if self._drafter.is_free:
            counts = self._worth_verifying(counts)
        return {
            request.id: guess[:count]
            for request, guess, count in zip(requests, guesses, counts, strict=True)
            if count
        }

    def _worth_verifying(self, most: Sequence[int]) -> list[int]:
        """Return how many drafts of each request pay, up to those in `most`."""
        rates = [odds.rate for odds in self._odds.values()]
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

    def _judge(self, request_id: int, guesses: Sequence[int], tokens: Sequence[int]) -> int:
        """Return how many guesses came true, and learn from those that could."""
        odds = self._odds.get(request_id)
        for place, (guess, token) in enumerate(zip(guesses, tokens, strict=False)):
            if odds is not None:
                odds.add(right=guess == token)
            if guess != token:
                return place
        return min(len(guesses), len(tokens))
