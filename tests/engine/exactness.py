"""Random cases for the promise itself: a hit changes nothing but the time.

Batches of requests run on engines with random budgets and pools, some so small that requests are preempted.
The logits of every request, at each position that it generates, are compared as bytes with those of the same
request alone on a cold cache, which is computed once.

Whatever else a request may carry becomes a field of `Ask`, drawn in `draw_asks` and put into the request in
`Ask.request`; whatever else an engine may do is drawn in `draw_engine`. The comparison stays as it is.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ratoon.engine.build import LoadedModel, build_core, load_model, open_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.request.finish import Usage
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams

LONG_ANSWER = 16


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to try, and how much of it.

    `path_fixture` gives its file. Of `num_asks` different requests the first have prompts of `lengths`, the
    others of random ones up to the longest of these. The pool has `num_blocks` blocks.
    """

    name: str
    path_fixture: str
    vocabulary: int
    lengths: tuple[int, ...]
    num_asks: int
    num_blocks: int
    num_cases: int
    window: int | None = None


@dataclass(frozen=True, eq=False)
class Ask:
    """What makes a request what it is; everything else must not matter."""

    prompt: tuple[int, ...]
    params: SamplingParams
    seed: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and answer."""
        assert self.params.max_tokens is not None
        return len(self.prompt) + self.params.max_tokens

    def request(self, model: LoadedModel, number: int) -> Request:
        """Return a request for this."""
        return Request(number, model.chain(self.prompt), self.params, self.seed)


@dataclass(frozen=True)
class Answered:
    """What came of a request; `logits` has the bytes of each position that was generated from."""

    token_ids: list[int]
    logits: list[bytes]
    usage: Usage

    def has_bits_of(self, other: "Answered") -> bool:
        """Whether tokens and logits are the same."""
        return self.token_ids == other.token_ids and self.logits == other.logits


class Bench:
    """Runs batches on one engine and keeps what every request's positions gave."""

    def __init__(self, model: LoadedModel, *, num_blocks: int | None = None, **settings: object) -> None:
        self.model = model
        self._logits: dict[int, list[bytes]] = {}
        if num_blocks is not None:
            settings["kv_cache_bytes"] = (num_blocks + 1) * model.budget.page_bytes
        config = replace(model.config, **settings)  # type: ignore[arg-type]
        self.core: EngineCore = build_core(model, config, observe_logits=self._observe)

    def run(self, asks: Iterable[Ask]) -> list[Answered]:
        """Submit all at once and step until none is left."""
        ids = []
        for ask in asks:
            request = ask.request(self.model, len(self._logits))
            self._logits[request.id] = []
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


class ColdAnswers:
    """Each request alone on a cold cache, the whole prompt in one chunk."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._known: dict[Ask, Answered] = {}

    def of(self, ask: Ask) -> Answered:
        """Return the answer, computed at the first time."""
        if ask not in self._known:
            bench = Bench(self._model, max_num_batched_tokens=2048, enable_prefix_caching=False)
            [self._known[ask]] = bench.run([ask])
        return self._known[ask]


def load(subject: Subject, path: Path, threads: int) -> LoadedModel:
    """Load the model with the native ops."""
    page_bytes = open_model(path).budget(EngineConfig()).page_bytes
    kv_cache_bytes = (subject.num_blocks + 1) * page_bytes
    return load_model(path, EngineConfig(ops="native", threads=threads, kv_cache_bytes=kv_cache_bytes))


def draw_asks(rng: random.Random, subject: Subject) -> list[Ask]:
    """Return requests over six documents, many of them short, some long."""
    longest = max(subject.lengths)
    documents = [[rng.randrange(subject.vocabulary) for _ in range(longest)] for _ in range(6)]
    asks = []
    for number in range(subject.num_asks):
        length = round(longest ** rng.uniform(0.1, 1))
        if number < len(subject.lengths):
            length = subject.lengths[number]
        shared = rng.choice((0, length, length // 16 * 16, rng.randrange(length)))
        prompt = [
            *rng.choice(documents)[:shared],
            *(rng.randrange(subject.vocabulary) for _ in range(length - shared)),
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


def draw_engine(
    rng: random.Random, subject: Subject, model: LoadedModel, asks: Sequence[Ask], *, roomy: bool
) -> tuple[Bench, list[list[Ask]]]:
    """Return an engine, its pool roomy or too small for growing answers, and five batches for it."""
    budget = round(512 ** rng.random())
    share_in_flight = rng.random() < 0.5
    if roomy:
        fitting = [ask for ask in asks if len(ask.prompt) <= 20 * budget]  # a small budget takes many steps
        batches = [rng.choices(fitting, k=rng.randint(1, 8)) for _ in range(5)]
        return Bench(model, max_num_batched_tokens=budget, share_in_flight=share_in_flight), batches
    budget = max(budget, 16)
    limit = min(20 * budget, subject.window or 20 * budget)  # beyond a window, memory hardly grows
    growing = [ask for ask in asks if ask.params.max_tokens == LONG_ANSWER and len(ask.prompt) <= limit]
    chosen = rng.sample(growing, k=rng.randint(2, min(6, len(growing))))
    blocks_for = Bench(model).core.scheduler.cache.blocks_for
    num_blocks = 1 + sum(blocks_for(len(ask.prompt) + 1) for ask in chosen)
    bench = Bench(
        model,
        num_blocks=num_blocks,
        max_num_batched_tokens=budget,
        share_in_flight=share_in_flight,
    )
    return bench, [rng.sample(chosen, k=len(chosen)) for _ in range(5)]


def check_random_cases(
    rng: random.Random, subject: Subject, model: LoadedModel, cold: ColdAnswers, asks: Sequence[Ask]
) -> None:
    """Run `subject.num_cases` batches and compare; they must also have reused and preempted something."""
    num_cases = num_hits = num_preemptions = 0
    while num_cases < subject.num_cases:
        roomy = num_cases % 10 == 0
        bench, batches = draw_engine(rng, subject, model, asks, roomy=roomy)
        # The cold answers come first: they are written to the same pages.
        expected = {ask: cold.of(ask) for batch in batches for ask in batch}
        scheduler = bench.core.scheduler
        for batch in batches:
            num_cases += 1
            for ask, answered in zip(batch, bench.run(batch), strict=True):
                assert answered.has_bits_of(expected[ask]), (
                    f"case {num_cases}: prompt of {len(ask.prompt)}, {answered.usage.cached_tokens} cached, "
                    f"batch of {len(batch)}, {scheduler.cache.usable_blocks} blocks"
                )
        num_hits += scheduler.cache.stats.num_hit_tokens
        num_preemptions += scheduler.num_preemptions
        assert scheduler.cache.num_free_blocks == scheduler.cache.usable_blocks
    assert num_hits > 0, "the cases are to reuse blocks"
    assert num_preemptions > 0, "the cases are to preempt"
