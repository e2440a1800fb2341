"""The promise itself, on the real models with the native ops: a hit changes nothing but the time."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from ratoon.engine.build import LoadedModel
from ratoon.request.sampling_params import SamplingParams
from tests.engine.exactness import Ask, Bench, ColdAnswers, Subject, check_random_cases, draw_asks, load

SMOLLM2 = Subject(
    name="smollm2",
    path_fixture="smollm2_path",
    vocabulary=49152,
    lengths=(1, 700, 16, 32, 17),
    num_asks=100,
    num_blocks=240,
    num_cases=100,
)
GEMMA3 = Subject(
    name="gemma3",
    path_fixture="gemma_path",
    vocabulary=262144,
    lengths=(1, 1100, 16, 511, 512, 513, 528, 700, 900),
    num_asks=24,
    num_blocks=1200,
    num_cases=10,
    window=512,
)


@pytest.fixture(scope="module", params=[SMOLLM2, GEMMA3], ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    found: Subject = request.param
    return found


@pytest.fixture(scope="module")
def models(subject: Subject, request: pytest.FixtureRequest) -> dict[int, LoadedModel]:
    """The model with one thread and with two."""
    path: Path = request.getfixturevalue(subject.path_fixture)
    return {threads: load(subject, path, threads) for threads in (1, 2)}


@pytest.fixture(scope="module")
def cold(models: dict[int, LoadedModel]) -> ColdAnswers:
    return ColdAnswers(models[2])


@pytest.fixture(scope="module")
def asks(subject: Subject) -> list[Ask]:
    return draw_asks(random.Random(1), subject)


@pytest.mark.parametrize("threads", [1, 2])
def test_logits_are_those_of_the_request_alone_on_a_cold_cache(
    subject: Subject, models: dict[int, LoadedModel], cold: ColdAnswers, asks: list[Ask], threads: int
) -> None:
    check_random_cases(random.Random(threads), subject, models[threads], cold, asks)


only_smollm2: Callable[..., None] = pytest.mark.parametrize(
    "subject", [SMOLLM2], indirect=True, ids=["smollm2"]
)


@only_smollm2
def test_a_shared_prefix_that_arrives_sixteen_times_is_computed_once(
    subject: Subject, models: dict[int, LoadedModel]
) -> None:
    rng = random.Random(5)
    prefix = [rng.randrange(subject.vocabulary) for _ in range(1024)]
    tails = [[number] * (number % 6) for number in range(16)]  # three of them empty: equal prompts
    params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    asks = [Ask((*prefix, *tail), params) for tail in tails]

    shared = Bench(models[2], share_in_flight=True).run(asks)
    apart = Bench(models[2], share_in_flight=False).run(asks)

    num_distinct = len(prefix) + sum(map(len, tails))
    num_full_hits = sum(not tail for tail in tails) - 1  # the first of the equal prompts computes them
    assert sum(answered.usage.computed_tokens for answered in shared) == num_distinct + num_full_hits
    assert all(a.has_bits_of(b) for a, b in zip(shared, apart, strict=True))


def test_a_pool_for_one_long_request_serves_twelve(subject: Subject, models: dict[int, LoadedModel]) -> None:
    rng = random.Random(6)
    prefix = [rng.randrange(subject.vocabulary) for _ in range(544)]  # longer than a window
    params = SamplingParams(max_tokens=21, temperature=0, ignore_eos=True)
    asks = [
        Ask((*prefix, *(rng.randrange(subject.vocabulary) for _ in range(14))), params) for _ in range(12)
    ]
    num_blocks = Bench(models[2]).core.scheduler.cache.blocks_for(asks[0].num_tokens)

    bench = Bench(models[2], num_blocks=num_blocks)
    cramped = bench.run(asks)
    roomy = Bench(models[2]).run(asks)

    assert all(a.has_bits_of(b) for a, b in zip(cramped, roomy, strict=True))
    assert bench.core.scheduler.num_preemptions > 0
    assert bench.core.scheduler.cache.num_free_blocks == num_blocks
