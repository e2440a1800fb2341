"""A draft model that is nothing but memory, guessing for another of its kind.

Both compute the same, so a guess is right unless the draft model reads a slot that holds something else: a
draft that was rejected, another request's token, nothing. `Lying` makes it guess wrong now and then, in
tokens that are known to be lies.
"""

from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any, cast

import pytest

from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.draft.draft_model import MAX_BEHIND, DraftModel
from ratoon.draft.speculation import Speculation
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.request import Request
from ratoon.step import ChunkResult, StepPlan, StepResult

MakeBench = Callable[..., Any]
ROOT = bytes(32)
VOCAB_SIZE = 29


class Lying:
    """A runner that changes some of the tokens which another one samples, and remembers which."""

    def __init__(self, inner: Any, random: Random, share: float) -> None:
        self.inner = inner
        self.random = random
        self.share = share
        self.lies: set[tuple[int, int]] = set()  # request id, position

    def execute(self, plan: StepPlan) -> StepResult:
        result = self.inner.execute(plan)
        chunks = []
        for chunk, found in zip(plan.chunks, result.chunks, strict=True):
            place = chunk.request_id, chunk.first_position + len(chunk.token_ids)
            self.lies.discard(place)
            tokens = found.token_ids
            if tokens and self.random.random() < self.share:
                tokens = ((tokens[0] + 1) % VOCAB_SIZE,)
                self.lies.add(place)
            chunks.append(ChunkResult(chunk.request_id, tokens))
        return StepResult(result.step_id, tuple(chunks))


class Whimsical(Speculation):
    """Verifies a random number of drafts, whatever they are worth, and checks those that are no lies."""

    def __init__(self, drafter: DraftModel, runner: Lying, bench: Any, max_drafts: int = 5) -> None:
        super().__init__(drafter, max_drafts)
        self.drafter = drafter
        self.runner = runner
        self.bench = bench
        self.num_failures = 0

    def _num_paying(self, rates: Sequence[float], most: Sequence[int]) -> list[int]:
        return [self.runner.random.randint(0, count) for count in most]

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        drafts = super().propose(requests)
        assert self.stats.num_failures == self.num_failures
        check_invariants(self.drafter.cache)
        for request in requests:
            truth = self.bench.alone(request).output[request.num_generated :]
            for place, (draft, token) in enumerate(zip(drafts[request.id], truth, strict=False)):
                if (request.id, request.num_known + place) in self.runner.lies:
                    break
                assert draft == token, "the draft model read what it should not"
        return drafts


def add_draft_model(
    bench: Any,
    *,
    num_blocks: int = 129,
    lies: float = 0.0,
    seed: int = 0,
    max_len: int = 200,
    chunk: int = 512,
) -> DraftModel:
    cache = CacheManager(bench.groups, num_blocks=num_blocks, block_size=4)
    memory = type(bench.runner)(bench.groups)
    memory.is_committed = lambda block_id: cache.pool.block_hashes[block_id] is not None
    runner = Lying(memory, Random(seed), lies)
    drafter = DraftModel(cache, runner, root=ROOT, max_model_len=max_len, max_chunk=chunk)
    bench.core._speculation = Whimsical(drafter, runner, bench)
    return drafter


def plans_of(drafter: DraftModel) -> list[StepPlan]:
    runner: Any = drafter._runner
    plans: list[StepPlan] = runner.inner.plans
    return plans


def test_a_draft_model_that_failed_starts_over_and_guesses_right(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench)
    speculation, runner = cast(Any, bench.core._speculation), cast(Any, drafter._runner)
    request = bench.add(range(1, 30), max_tokens=40, presence_penalty=0.5)
    while bench.core.draft_stats.num_drafts < 5:
        bench.step()
    runner.inner.failure = OSError("no memory")
    drafts = Speculation.propose(speculation, [request])
    assert drafts == {}
    assert speculation.stats.num_failures == 1
    speculation.num_failures = 1
    assert drafter.cache.num_free_blocks == drafter.cache.num_usable_blocks
    speculation.stats.num_paused_steps = 0
    bench.run()


@pytest.mark.parametrize("seed", range(60))
def test_guesses_are_right_unless_they_are_lies(make_bench: MakeBench, seed: int) -> None:
    random = Random(seed)
    bench = make_bench(
        windows=random.choice([(None,), (None, 5), (7,), (3, None)]),
        num_blocks=random.choice([30, 65]),
        max_num_batched_tokens=random.choice([5, 17, 64, 512]),
        max_model_len=random.choice([40, 80]),
    )
    drafter = add_draft_model(
        bench,
        num_blocks=random.choice([12, 30, 129]),
        lies=random.choice([0, 0.1, 0.4]),
        seed=seed,
        max_len=random.choice([30, 80]),
        chunk=random.choice([3, 16, 64]),
    )
    prompts = [[random.randrange(1, 4) for _ in range(random.choice([1, 8, 17, 25]))] for _ in range(3)]
    for _ in range(25):
        if random.random() < 0.4:
            bench.add(
                random.choice(prompts),
                max_tokens=random.choice([3, 10, 20]),
                seed=random.choice([1, 2]),
                salt=random.choice([None, "a"]),
                read_cache=random.random() < 0.9,
                write_cache=random.random() < 0.9,
            )
        bench.step()
        if bench.requests and random.random() < 0.1:
            bench.cancel(random.choice(list(bench.requests.values())))
        if random.random() < 0.05:
            bench.core.reset_cache()
    bench.run()
    drafter.propose([])
    assert drafter.cache.num_free_blocks == drafter.cache.num_usable_blocks


def test_right_drafts_are_not_computed_again(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench)
    request = bench.add([1, 2, 3, 4, 5], max_tokens=30)
    bench.step()
    plans = plans_of(drafter)
    for _ in range(4):
        drafts = drafter.propose([(request, 3)])[0].tokens
        request.chain.append([*drafts, 7])
        assert [plan.num_tokens for plan in plans[-2:]] == [1, 1]
    assert sum(plan.num_tokens for plan in plans) == request.num_known - 4 + 3 - 1


def test_a_prompt_that_the_draft_model_knows_is_a_hit(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench)
    for _ in range(2):
        request = bench.add(range(1, 22), max_tokens=2)
        bench.step()
        drafter.propose([(request, 1)])
        bench.run()
    assert drafter.cache.stats.num_hit_tokens == 20  # of 22 known tokens five blocks are full


def test_salts_part_the_draft_models_cache_and_adapters_do_not(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench)

    def hits(**extras: Any) -> int:
        before = drafter.cache.stats.num_hit_tokens
        request = bench.request(range(1, 22))
        request.chain.extra_keys = ExtraKeys(**extras)
        drafter.propose([(request, 1)])
        drafter.propose([])
        return drafter.cache.stats.num_hit_tokens - before

    assert [hits(), hits(), hits(salt="a"), hits(salt="a"), hits(adapter=b"x")] == [0, 20, 0, 20, 20]


def test_a_long_prompt_is_caught_up_with_in_chunks_before_anything_is_guessed(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench, chunk=100)
    request = bench.request([1 + i % 7 for i in range(180)])
    found = [len(drafter.propose([(request, 2)])[0].tokens) for _ in range(3)]
    assert found == [0, 0, 2]
    sizes = [plan.num_tokens for plan in plans_of(drafter)]
    assert sizes == [100, 80, 1, 1]
    assert MAX_BEHIND < 80


def test_requests_share_the_tokens_that_a_round_may_compute(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench, chunk=30)
    requests = [bench.add([i, *range(1, 20)]) for i in range(3)]
    found = drafter.propose([(request, 2) for request in requests])
    assert [len(guess.tokens) for guess in found] == [2, 0, 0]
    assert [plan.num_tokens for plan in plans_of(drafter)] == [30, 1]


@pytest.mark.parametrize(
    ("limits", "length"), [({"num_blocks": 6}, 20), ({"max_len": 20}, 20)], ids=["pool", "context"]
)
def test_who_does_not_fit_is_not_guessed_for(
    make_bench: MakeBench, limits: dict[str, int], length: int
) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench, **limits)
    fits, too_long = bench.add([1] * (length - 1)), bench.add([2] * length)
    assert [len(guess.tokens) for guess in drafter.propose([(too_long, 2)])] == [0]
    assert [len(guess.tokens) for guess in drafter.propose([(fits, 2)])] == [2]


def test_who_has_input_rows_is_not_guessed_for_nor_hashed_at_every_step(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench)
    request = bench.request([0.5, 1.5, 3, 4, 5, 6, 7, 8])
    monkeypatch.setattr("ratoon.draft.draft_model.HashChain", None)
    assert not drafter.propose([(request, 2)])[0].tokens


def test_what_a_round_takes_is_measured_where_nothing_is_caught_up_with(make_bench: MakeBench) -> None:
    bench = make_bench()
    drafter = add_draft_model(bench)
    ticks = count()
    drafter._clock = lambda: float(next(ticks))
    drafter.propose([(bench.add(range(i, 20)), 9) for i in range(4)])
    assert drafter.round_seconds(4) == pytest.approx(1)


def test_a_prompt_is_hashed_once_even_if_it_has_to_wait_for_room(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    class CountedChain(HashChain):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr("ratoon.draft.draft_model.HashChain", CountedChain)
    bench = make_bench()
    drafter = add_draft_model(bench, num_blocks=6)
    first, second = bench.add([1] * 17), bench.add([2] * 17)
    wanted = [(first, 1), (second, 1)]
    assert [len(guess.tokens) for guess in drafter.propose(wanted)] == [1, 0]
    drafter.propose(wanted)
    drafter.propose(wanted[1:])
    assert [chain.num_tokens for chain in made] == [17, 17]
    drafter.propose([])
    assert drafter.cache.num_free_blocks == drafter.cache.num_usable_blocks
