"""The promise itself, on the real models with the native ops: a hit changes nothing but the time."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ratoon.engine.build import LoadedModel
from ratoon.engine.open_model import open_model
from ratoon.engine.prompt_parts import PromptTokens
from ratoon.request.sampling_params import SamplingParams
from tests.engine.exactness import (
    GEMMA3,
    LONG_ANSWER,
    SMOLLM2,
    Ask,
    Bench,
    ColdAnswers,
    Guesses,
    Subject,
    check_random_cases,
    draw_asks,
    load,
    tight_pool,
    write_adapters,
)


@pytest.fixture(scope="module", params=[SMOLLM2, GEMMA3], ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture(scope="module")
def adapters(
    subject: Subject,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    write_adapter: Callable[..., Path],
) -> dict[str, Path]:
    spec = open_model(request.getfixturevalue(subject.path_fixture)).spec
    return write_adapters(tmp_path_factory.mktemp(subject.name), spec, write_adapter)


@pytest.fixture(scope="module")
def models(
    subject: Subject, request: pytest.FixtureRequest, adapters: dict[str, Path]
) -> dict[int, LoadedModel]:
    """The model with one thread and with two, both with two adapters."""
    path: Path = request.getfixturevalue(subject.path_fixture)
    return {threads: load(subject, path, threads, adapters) for threads in (1, 2)}


@pytest.fixture(scope="module")
def cold(models: dict[int, LoadedModel]) -> ColdAnswers:
    return ColdAnswers(models[2])


@pytest.fixture(scope="module")
def asks(subject: Subject, models: dict[int, LoadedModel]) -> list[Ask]:
    return draw_asks(random.Random(1), subject, models[2])


@pytest.mark.parametrize("threads", [1, 2])
def test_logits_are_those_of_the_request_alone_on_a_cold_cache(
    subject: Subject, models: dict[int, LoadedModel], cold: ColdAnswers, asks: list[Ask], threads: int
) -> None:
    check_random_cases(random.Random(threads), subject, models[threads], cold, asks, subject.num_cases)


def test_adapters_make_a_difference(
    models: dict[int, LoadedModel], cold: ColdAnswers, asks: list[Ask]
) -> None:
    for ask in [ask for ask in asks if ask.num_prompt_tokens < 100][:5]:
        answers = [cold.of(replace(ask, adapter=name)) for name in (None, *models[2].adapters.by_name)]
        assert len({answered.logits[0] for answered in answers}) == 3


@pytest.mark.parametrize("guessing", [False, True])
def test_preempted_requests_come_back_to_the_weights_they_began_with(
    models: dict[int, LoadedModel], cold: ColdAnswers, adapters: dict[str, Path], guessing: bool
) -> None:
    """What the adapter's name stands for is replaced before the first step, and forgotten after it."""
    model, rng = models[2], random.Random(9)
    params = SamplingParams(max_tokens=LONG_ANSWER, temperature=0.8, ignore_eos=True)
    asks = [
        Ask(PromptTokens([rng.randrange(model.spec.vocab_size) for _ in range(40)]), params, seed, "all")
        for seed in range(4)
    ]
    expected = {ask: cold.of(ask) for ask in asks}
    guesses = Guesses(rng, model.spec.vocab_size, lambda ask: expected[ask].token_ids) if guessing else None
    bench = Bench(model, num_blocks=tight_pool(model, asks), guesses=guesses)
    requests = [bench.add(ask) for ask in asks]
    try:
        model.adapters.load("all", adapters["some"])
        bench.core.step()
        model.adapters.unload("all")
        answers = bench.finish(requests)
    finally:
        model.adapters.load("all", adapters["all"])
    assert all(answered.has_bits_of(expected[ask]) for answered, ask in zip(answers, asks, strict=True))
    assert bench.core.scheduler.num_preemptions > 0
    assert all(request.adapter is None for request in requests)


only_smollm2: Callable[..., None] = pytest.mark.parametrize(
    "subject", [SMOLLM2], indirect=True, ids=["smollm2"]
)


@only_smollm2
def test_a_shared_prefix_that_arrives_sixteen_times_is_computed_once(
    subject: Subject, models: dict[int, LoadedModel]
) -> None:
    rng = random.Random(5)
    prefix = [rng.randrange(models[2].spec.vocab_size) for _ in range(1024)]
    tails = [[number] * (number % 6) for number in range(16)]  # three of them empty: equal prompts
    params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    asks = [Ask(PromptTokens([*prefix, *tail]), params) for tail in tails]

    shared = Bench(models[2], share_in_flight=True).run(asks)
    apart = Bench(models[2], share_in_flight=False).run(asks)

    num_distinct = len(prefix) + sum(map(len, tails))
    num_full_hits = sum(not tail for tail in tails) - 1  # the first of the equal prompts computes them
    assert sum(answered.usage.computed_tokens for answered in shared) == num_distinct + num_full_hits
    assert all(a.has_bits_of(b) for a, b in zip(shared, apart, strict=True))


def test_a_pool_for_one_long_request_serves_twelve(models: dict[int, LoadedModel]) -> None:
    model, rng = models[2], random.Random(6)
    ids = [rng.randrange(model.spec.vocab_size) for _ in range(544)]  # longer than a window
    params = SamplingParams(max_tokens=21, temperature=0, ignore_eos=True)
    asks = [
        Ask(PromptTokens([*ids, *(rng.randrange(model.spec.vocab_size) for _ in range(14))]), params)
        for _ in range(12)
    ]
    num_blocks = Bench(model).core.scheduler.cache.blocks_for(544 + 14 + 21)

    bench = Bench(model, num_blocks=num_blocks)
    cramped = bench.run(asks)
    roomy = Bench(model).run(asks)

    assert all(a.has_bits_of(b) for a, b in zip(cramped, roomy, strict=True))
    assert bench.core.scheduler.num_preemptions > 0
    assert bench.core.scheduler.cache.num_free_blocks == num_blocks
