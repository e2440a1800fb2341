"""A request's bits do not depend on which adapters run beside it, on the real model with the native ops.

Random batches mix the model alone and two adapters, on engines with random budgets and pools, cold and warm,
some so small that requests are preempted. Every request's logits are compared as bytes with those of the same
request alone on a cold cache.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ratoon.engine.build import LoadedModel, build_core, load_model, open_model
from ratoon.engine.config import EngineConfig
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams

POOL_BLOCKS = 120
BLOCK = 16
CASES_PER_ENGINE_KIND = 20
NUM_TOKENS = 12
PARAMS = SamplingParams(max_tokens=NUM_TOKENS, temperature=0.8, ignore_eos=True)


@dataclass(frozen=True)
class Ask:
    """A prompt, and the name of the adapter that it goes through."""

    prompt: tuple[int, ...]
    adapter: str | None
    seed: int = 0


@dataclass(frozen=True)
class Answered:
    """`cached_tokens` is no part of the comparison: it is what may differ."""

    token_ids: list[int]
    logits: list[bytes]
    cached_tokens: int

    def has_bits_of(self, other: "Answered") -> bool:
        return self.token_ids == other.token_ids and self.logits == other.logits


class Bench:
    """Runs batches on one engine and keeps what every position gave."""

    def __init__(self, model: LoadedModel, **settings: object) -> None:
        self._model = model
        self._logits: dict[int, list[bytes]] = {}
        config = replace(model.config, **settings)  # type: ignore[arg-type]
        self.core = build_core(model, config, observe_logits=self._observe)

    def request(self, ask: Ask) -> Request:
        adapter = None if ask.adapter is None else self._model.adapters.get(ask.adapter)
        extra_keys = ExtraKeys(adapter=None if adapter is None else adapter.digest)
        chain = self._model.chain(ask.prompt, extra_keys)
        request = Request(len(self._logits), chain, PARAMS, ask.seed, adapter=adapter)
        self._logits[request.id] = []
        return request

    def run(self, requests: Sequence[Request]) -> list[Answered]:
        for request in requests:
            self.core.add(request)
        while self.core.has_work:
            assert not any(delta.error for delta in self.core.step())
        return [
            Answered(
                list(request.chain.tokens[request.num_prompt_tokens :]),
                self._logits[request.id],
                request.num_cached,
            )
            for request in requests
        ]

    def _observe(self, request_id: int, position: int, logits: bytes) -> None:
        self._logits[request_id].append(logits)


@pytest.fixture(scope="module")
def models(smollm2_path: Path, smollm2_adapters: dict[str, Path]) -> dict[int, LoadedModel]:
    """The model with one thread and with two, both with both adapters."""
    page_bytes = open_model(smollm2_path).budget(EngineConfig()).page_bytes
    models = {}
    for threads in (1, 2):
        config = EngineConfig(ops="native", threads=threads, kv_cache_bytes=(POOL_BLOCKS + 1) * page_bytes)
        models[threads] = load_model(smollm2_path, config)
        for name, folder in smollm2_adapters.items():
            models[threads].adapters.load(name, folder)
    return models


@pytest.fixture(scope="module")
def asks() -> list[Ask]:
    """Twenty-four requests: few prompts, so that many differ in the adapter alone or share a beginning."""
    rng = random.Random(8)
    document = [rng.randrange(49152) for _ in range(200)]
    prompts = [
        (*document[: rng.choice((0, 16, 100, 180))], *(rng.randrange(49152) for _ in range(length)))
        for length in (1, 5, 16, 17, 40, 7, 30, 3)
    ]
    return [
        Ask(prompt, adapter, rng.randrange(2**32))
        for prompt in prompts
        for adapter in (None, "lora_a", "lora_b")
    ]


@pytest.fixture(scope="module")
def cold(models: dict[int, LoadedModel], asks: list[Ask]) -> dict[Ask, Answered]:
    """Each request alone, without a cache, its prompt in one chunk."""
    found = {}
    for ask in asks:
        bench = Bench(models[2], max_num_batched_tokens=512, enable_prefix_caching=False)
        [found[ask]] = bench.run([bench.request(ask)])
    return found


def tight_pool(batch: Sequence[Ask]) -> int:
    """Return how many blocks hold every prompt, or at least one whole answer, and hardly more."""
    shared = {
        (ask.adapter, ask.prompt[:end]) for ask in batch for end in range(BLOCK, len(ask.prompt) + 1, BLOCK)
    }
    return min(POOL_BLOCKS, max(len(shared) + len(batch) + 1, *map(num_blocks_of, batch)))


def num_blocks_of(ask: Ask) -> int:
    return (len(ask.prompt) + NUM_TOKENS) // BLOCK + 2


def fits(batch: Sequence[Ask], num_blocks: int) -> bool:
    return max(map(num_blocks_of, batch)) <= num_blocks


def test_adapters_make_a_difference(asks: list[Ask], cold: dict[Ask, Answered]) -> None:
    for i in range(0, len(asks), 3):
        assert len({cold[ask].logits[0] for ask in asks[i : i + 3]}) == 3


@pytest.mark.parametrize("share_in_flight", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_logits_are_those_of_the_request_alone_on_a_cold_cache(
    models: dict[int, LoadedModel],
    asks: list[Ask],
    cold: dict[Ask, Answered],
    threads: int,
    share_in_flight: bool,
) -> None:
    rng = random.Random(10 * threads + share_in_flight)
    num_cases = num_hits = num_preemptions = 0
    while num_cases < CASES_PER_ENGINE_KIND:
        is_tight = rng.random() < 0.5
        batches = [rng.choices(asks, k=rng.randint(2, 8)) for _ in range(5)]
        num_blocks = tight_pool(batches[0]) if is_tight else POOL_BLOCKS
        batches = [batch for batch in batches if fits(batch, num_blocks)]
        bench = Bench(
            models[threads],
            max_num_batched_tokens=rng.choice((16, 61, 300)),
            share_in_flight=share_in_flight,
            kv_cache_bytes=(num_blocks + 1) * models[threads].budget.page_bytes,
        )
        for batch in batches:
            num_cases += 1
            answers = bench.run([bench.request(ask) for ask in batch])
            for ask, answered in zip(batch, answers, strict=True):
                assert answered.has_bits_of(cold[ask]), (
                    f"case {num_cases}: {ask.adapter}, prompt of {len(ask.prompt)}, "
                    f"{answered.cached_tokens} cached, batch of {[ask.adapter for ask in batch]}"
                )
        num_hits += bench.core.scheduler.cache.stats.num_hit_tokens
        num_preemptions += bench.core.scheduler.num_preemptions
    assert num_hits > 0, "the cases are to reuse blocks"
    assert num_preemptions > 0, "the cases are to preempt"


def test_preempted_requests_come_back_to_the_weights_they_began_with(
    models: dict[int, LoadedModel],
    asks: list[Ask],
    cold: dict[Ask, Answered],
    smollm2_adapters: dict[str, Path],
) -> None:
    model = models[2]
    batch = [ask for ask in asks if ask.adapter == "lora_a"]
    num_blocks = tight_pool(batch)
    bench = Bench(model, kv_cache_bytes=(num_blocks + 1) * model.budget.page_bytes)
    requests = [bench.request(ask) for ask in batch]
    try:
        model.adapters.load("lora_a", smollm2_adapters["lora_b"])
        answers = bench.run(requests)
    finally:
        model.adapters.load("lora_a", smollm2_adapters["lora_a"])
    assert all(answered.has_bits_of(cold[ask]) for answered, ask in zip(answers, batch, strict=True))
    assert bench.core.scheduler.num_preemptions > 0
    assert all(request.adapter is None for request in requests)
