"""The promise itself, on the real model with the native ops: a hit changes nothing but the time.

Random batches run on engines with random budgets and pools, some so small that requests are preempted.
Every request's logits, at each position that it generates, are compared as bytes with those of the same
request alone on a cold cache. Each distinct request is computed cold once. Half of the engines verify drafts,
right ones and wrong ones.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ratoon.draft.prompt_lookup import PromptLookup
from ratoon.draft.speculation import Speculation
from ratoon.engine.build import LoadedModel, build_core, load_model, open_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.request.finish import Usage
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams

POOL_BLOCKS = 240
BLOCK = 16
VOCABULARY = 49152
LONG_ANSWER = 16
CASES_PER_ENGINE_KIND = 50


@dataclass(frozen=True, eq=False)
class Ask:
    """What makes a request what it is; everything else must not matter."""

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int = 0

    @property
    def num_blocks(self) -> int:
        assert self.params.max_tokens is not None
        return -(-(len(self.prompt) + self.params.max_tokens) // BLOCK)


@dataclass(frozen=True)
class Answered:
    token_ids: list[int]
    logits: list[bytes]
    usage: Usage


class Guesses(Speculation):
    """Knows the answers, and guesses the next tokens right up to a random place."""

    def __init__(self, rng: random.Random, answers: Mapping[int, Sequence[int]]) -> None:
        super().__init__(PromptLookup(), 1)
        self._rng = rng
        self._answers = answers

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        return {request.id: self._guess(request) for request in requests}

    def _guess(self, request: Request) -> list[int]:
        right = self._answers[request.id][request.num_generated :][: self._rng.choice((0, 1, 2, 9))]
        return [*right, *(self._rng.randrange(VOCABULARY) for _ in range(self._rng.choice((0, 1, 4))))]


class Bench:
    """Runs batches on one engine and keeps what every request's positions gave."""

    def __init__(self, model: LoadedModel, **settings: object) -> None:
        self.model = model
        self._logits: dict[int, list[bytes]] = {}
        self._answers: dict[int, Sequence[int]] = {}
        self._expected: Mapping[Ask, Answered] = {}
        config = replace(model.config, **settings)  # type: ignore[arg-type]
        self.core: EngineCore = build_core(model, config, observe_logits=self._observe)

    def guess(self, rng: random.Random, expected: Mapping[Ask, Answered]) -> None:
        """Verify drafts from now on."""
        self._expected = expected
        self.core._speculation = Guesses(rng, self._answers)

    def run(self, asks: Iterable[Ask]) -> list[Answered]:
        ids = []
        for ask in asks:
            request = Request(len(self._logits), self.model.chain(ask.prompt), ask.params, ask.seed)
            self._logits[request.id] = []
            if self._expected:
                self._answers[request.id] = self._expected[ask].token_ids
            self.core.add(request)
            ids.append(request.id)
        tokens: dict[int, list[int]] = {request_id: [] for request_id in ids}
        usages: dict[int, Usage] = {}
        while self.core.has_work:
            for delta in self.core.step():
                assert delta.error is None
                tokens[delta.request_id] += delta.token_ids
                if delta.usage is not None:
                    usages[delta.request_id] = delta.usage
        return [Answered(tokens[i], self._logits[i], usages[i]) for i in ids]

    def _observe(self, request_id: int, position: int, logits: bytes) -> None:
        self._logits[request_id].append(logits)


@pytest.fixture(scope="module")
def models(smollm2_path: Path) -> dict[int, LoadedModel]:
    """The model with one thread and with two."""
    page_bytes = open_model(smollm2_path).budget(EngineConfig()).page_bytes
    return {
        threads: load_model(
            smollm2_path,
            EngineConfig(ops="native", threads=threads, kv_cache_bytes=(POOL_BLOCKS + 1) * page_bytes),
        )
        for threads in (1, 2)
    }


class ColdAnswers:
    """Each request alone on a cold cache, with two threads, whole prompt in one chunk."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._known: dict[Ask, Answered] = {}

    def of(self, ask: Ask) -> Answered:
        if ask not in self._known:
            bench = Bench(self._model, max_num_batched_tokens=1024, enable_prefix_caching=False)
            [self._known[ask]] = bench.run([ask])
        return self._known[ask]


@pytest.fixture(scope="module")
def cold(models: dict[int, LoadedModel]) -> ColdAnswers:
    return ColdAnswers(models[2])


def same_bits(warm: Answered, cold: Answered) -> bool:
    return warm.token_ids == cold.token_ids and warm.logits == cold.logits


@pytest.fixture(scope="module")
def asks() -> list[Ask]:
    """A hundred requests over six documents, of 1 to 700 tokens: many short, some long."""
    rng = random.Random(1)
    documents = [[rng.randrange(VOCABULARY) for _ in range(700)] for _ in range(6)]
    asks = []
    for number in range(100):
        length = (1, 700, 16, 32, 17)[number] if number < 5 else round(700 ** rng.uniform(0.1, 1))
        shared = rng.choice((0, length, length // 16 * 16, rng.randrange(length)))
        prompt = [
            *rng.choice(documents)[:shared],
            *(rng.randrange(VOCABULARY) for _ in range(length - shared)),
        ]
        params = SamplingParams(
            max_tokens=rng.choice((1, 2, 3, 4, LONG_ANSWER)),
            temperature=rng.choice((0, 0.3, 1, 1.5)),
            top_p=0.95,
            repetition_penalty=rng.choice((1, 1.1)),
            ignore_eos=True,
        )
        asks.append(Ask(tuple(prompt), params, seed=rng.randrange(2**64)))
    return asks


def plan_engine(rng: random.Random, asks: Sequence[Ask]) -> tuple[int, list[list[Ask]], int]:
    """Choose a chunk budget, five batches, and a pool: roomy, or too small for growing answers."""
    budget = round(512 ** rng.random())
    if rng.random() < 0.5:
        fitting = [ask for ask in asks if len(ask.prompt) <= 20 * budget]  # a small budget takes many steps
        return budget, [rng.choices(fitting, k=rng.randint(1, 8)) for _ in range(5)], POOL_BLOCKS
    budget = max(budget, 16)
    growing = [ask for ask in asks if ask.params.max_tokens == LONG_ANSWER and len(ask.prompt) <= 20 * budget]
    chosen = rng.sample(growing, k=rng.randint(2, 6))
    num_blocks = sum(len(ask.prompt) // BLOCK + 1 for ask in chosen) + 1
    return budget, [rng.sample(chosen, k=len(chosen)) for _ in range(5)], num_blocks


@pytest.mark.parametrize("share_in_flight", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_logits_are_those_of_the_request_alone_on_a_cold_cache(
    models: dict[int, LoadedModel], cold: ColdAnswers, asks: list[Ask], threads: int, share_in_flight: bool
) -> None:
    rng = random.Random(10 * threads + share_in_flight)
    num_cases = num_hits = num_preemptions = num_accepted = num_rejected = 0
    while num_cases < CASES_PER_ENGINE_KIND:
        budget, batches, num_blocks = plan_engine(rng, asks)
        expected = {ask: cold.of(ask) for batch in batches for ask in batch}  # before anything is cached
        bench = Bench(
            models[threads],
            max_num_batched_tokens=budget,
            share_in_flight=share_in_flight,
            kv_cache_bytes=(num_blocks + 1) * models[threads].budget.page_bytes,
        )
        if rng.random() < 0.5:
            bench.guess(rng, expected)
        for batch in batches:
            num_cases += 1
            for ask, answered in zip(batch, bench.run(batch), strict=True):
                assert same_bits(answered, expected[ask]), (
                    f"case {num_cases}: prompt of {len(ask.prompt)}, {answered.usage.cached_tokens} cached, "
                    f"batch of {len(batch)}, budget {budget}, {num_blocks} blocks"
                )
        num_hits += bench.core.scheduler.cache.stats.num_hit_tokens
        num_preemptions += bench.core.scheduler.num_preemptions
        num_accepted += bench.core.draft_stats.num_accepted_drafts
        num_rejected += bench.core.draft_stats.num_drafts - bench.core.draft_stats.num_accepted_drafts
        assert bench.core.scheduler.cache.num_free_blocks == num_blocks
    assert num_hits > 0, "the cases are to reuse blocks"
    assert num_preemptions > 0, "the cases are to preempt"
    assert num_accepted > 0, "the cases are to guess right"
    assert num_rejected > 0, "the cases are to guess wrong"


def test_a_shared_prefix_that_arrives_sixteen_times_is_computed_once(
    models: dict[int, LoadedModel],
) -> None:
    rng = random.Random(5)
    prefix = [rng.randrange(VOCABULARY) for _ in range(1024)]
    tails = [[number] * (number % 6) for number in range(16)]  # three of them empty: equal prompts
    params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    asks = [Ask((*prefix, *tail), params) for tail in tails]

    shared = Bench(models[2], share_in_flight=True).run(asks)
    apart = Bench(models[2], share_in_flight=False).run(asks)

    num_distinct = len(prefix) + sum(map(len, tails))
    num_full_hits = sum(not tail for tail in tails) - 1  # the first of the equal prompts computes them
    assert sum(answered.usage.computed_tokens for answered in shared) == num_distinct + num_full_hits
    assert all(same_bits(a, b) for a, b in zip(shared, apart, strict=True))


def test_a_pool_for_one_long_request_serves_twenty(models: dict[int, LoadedModel]) -> None:
    rng = random.Random(6)
    prefix = [rng.randrange(VOCABULARY) for _ in range(320)]
    params = SamplingParams(max_tokens=21, temperature=0, ignore_eos=True)
    asks = [Ask((*prefix, *(rng.randrange(VOCABULARY) for _ in range(14))), params) for _ in range(20)]
    num_blocks = asks[0].num_blocks

    bench = Bench(models[2], kv_cache_bytes=(num_blocks + 1) * models[2].budget.page_bytes)
    cramped = bench.run(asks)
    roomy = Bench(models[2]).run(asks)

    assert all(same_bits(a, b) for a, b in zip(cramped, roomy, strict=True))
    assert bench.core.scheduler.num_preemptions > 0
    assert bench.core.scheduler.cache.num_free_blocks == num_blocks
