from collections.abc import Sequence
from typing import Any

import pytest

from ratoon.cache.manager import CacheManager
from ratoon.errors import EmptyPromptError, PoolTooSmallError, PromptTooLongError
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.sched.limits import Limits
from ratoon.sched.scheduler import Scheduler
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.step import ChunkResult, ScheduledChunk, StepPlan, StepResult

BLOCK_SIZE = 4
TOKEN = 50


class Desk:
    """A scheduler, and a runner that answers `TOKEN` whenever it is asked to sample."""

    def __init__(
        self,
        *,
        num_blocks: int = 100,
        max_num_seqs: int = 16,
        max_num_batched_tokens: int = 64,
        max_model_len: int = 100,
        windows: Sequence[int | None] = (None,),
    ) -> None:
        groups = [CacheGroupSpec(window) for window in windows]
        self.cache = CacheManager(groups, num_blocks=num_blocks, block_size=BLOCK_SIZE)
        limits = Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
        )
        self.scheduler = Scheduler(self.cache, limits)
        self.num_requests = 0

    def add(self, prompt: Sequence[int], *, priority: int = 0, **params: Any) -> int:
        chain = HashChain(bytes(32), BLOCK_SIZE, tokens=prompt)
        request = Request(
            self.num_requests, chain, SamplingParams(**{"max_tokens": 12, **params}), 7, priority=priority
        )
        self.scheduler.add(request, now=0.0)
        self.num_requests += 1
        return request.id

    def apply(self, plan: StepPlan) -> tuple[RequestDelta, ...]:
        results = [ChunkResult(chunk.request_id, (TOKEN,) if chunk.sample else ()) for chunk in plan.chunks]
        return self.scheduler.apply(plan, StepResult(plan.step_id, tuple(results)), now=1.0)

    def plan_and_apply(self) -> StepPlan:
        plan = self.scheduler.plan(now=0.0)
        self.apply(plan)
        return plan

    def step(self) -> tuple[ScheduledChunk, ...]:
        return self.plan_and_apply().chunks


def shape(chunks: Sequence[ScheduledChunk]) -> list[tuple[int, int, int]]:
    """Request, first position and length of each chunk."""
    return [(chunk.request_id, chunk.first_position, len(chunk.token_ids)) for chunk in chunks]


def document(start: int, length: int) -> list[int]:
    """A prompt that shares nothing with one of another start."""
    return [start + i for i in range(length)]


def test_a_long_prompt_is_cut_into_chunks_and_only_the_last_one_samples() -> None:
    desk = Desk(max_num_batched_tokens=8)
    desk.add(document(100, 19))
    chunks = [desk.step()[0] for _ in range(4)]
    assert shape(chunks) == [(0, 0, 8), (0, 8, 8), (0, 16, 3), (0, 19, 1)]
    assert [chunk.sample is not None for chunk in chunks] == [False, False, True, True]
    assert chunks[3].token_ids == (TOKEN,)


def test_answers_in_progress_and_new_prompts_share_a_step() -> None:
    desk = Desk(max_num_batched_tokens=8)
    desk.add(document(100, 3))
    desk.step()
    desk.add(document(200, 10))
    assert shape(desk.step()) == [(0, 3, 1), (1, 0, 7)]
    assert shape(desk.step()) == [(0, 4, 1), (1, 7, 3)]


def test_the_budget_goes_to_those_who_came_first() -> None:
    desk = Desk(max_num_batched_tokens=8)
    for start in (100, 200, 300):
        desk.add(document(start, 6))
    assert shape(desk.step()) == [(0, 0, 6), (1, 0, 2)]
    assert shape(desk.step()) == [(0, 6, 1), (1, 2, 4), (2, 0, 3)]


def test_at_most_max_num_seqs_run() -> None:
    desk = Desk(max_num_seqs=2)
    for start in (100, 200, 300):
        desk.add(document(start, 3), max_tokens=2)
    assert shape(desk.step()) == [(0, 0, 3), (1, 0, 3)]
    assert shape(desk.step()) == [(0, 3, 1), (1, 3, 1)]
    assert shape(desk.step()) == [(2, 0, 3)]


def test_more_important_requests_start_first_and_run_first() -> None:
    desk = Desk(max_num_batched_tokens=5)
    desk.add(document(100, 4), priority=1)
    desk.add(document(200, 4), priority=-1)
    assert shape(desk.step()) == [(1, 0, 4), (0, 0, 1)]
    desk.add(document(300, 4), priority=0)
    assert shape(desk.step()) == [(1, 4, 1), (0, 1, 3), (2, 0, 1)]
    assert shape(desk.step()) == [(1, 5, 1), (2, 1, 3), (0, 4, 1)]


def test_a_step_inside_a_block_asks_nothing_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    desk.add(document(100, 4))
    desk.step()
    tables = desk.step()[0].block_tables  # position 4 opened a block
    for name in ("match", "reserve", "announce", "commit", "block_tables"):
        monkeypatch.delattr(CacheManager, name)
    for _ in range(2):
        (chunk,) = desk.step()
        assert chunk.block_tables is tables


def test_without_room_the_latest_of_the_least_important_is_preempted() -> None:
    desk = Desk(num_blocks=1 + 7)
    desk.add(document(100, 8), priority=1)  # two blocks each
    desk.add(document(200, 8), priority=0)
    desk.add(document(300, 8), priority=1)
    assert shape(desk.step()) == [(1, 0, 8), (0, 0, 8), (2, 0, 8)]
    assert shape(desk.step()) == [(1, 8, 1), (0, 8, 1)]  # the one free block, and those of the third request
    assert (desk.scheduler.num_running, desk.scheduler.num_waiting) == (2, 1)
    assert desk.scheduler.num_preemptions == 1


def test_a_request_without_room_that_is_itself_the_last_keeps_what_it_has() -> None:
    desk = Desk(num_blocks=1 + 5)
    desk.add(document(100, 8), max_tokens=3)
    desk.add(document(200, 8), max_tokens=3)
    desk.step()
    assert shape(desk.step()) == [(0, 8, 1)]
    assert desk.scheduler.num_running == 2
    assert shape(desk.step()) == [(0, 9, 1)]
    assert shape(desk.step()) == [(1, 8, 1)]
    assert desk.scheduler.num_preemptions == 0


def test_a_preempted_request_comes_back_before_later_ones_and_builds_on_what_is_left_of_it() -> None:
    desk = Desk(num_blocks=1 + 7)
    desk.add(document(100, 8), max_tokens=2)
    desk.add(document(200, 8), max_tokens=2)
    desk.add(document(300, 8))
    desk.step()
    desk.step()  # preempts the last one and takes its second block
    desk.add(document(400, 8))
    assert shape(desk.step()) == [(2, 4, 5), (3, 0, 8)]
    stats = desk.cache.stats
    assert (stats.num_query_tokens, stats.num_hit_tokens) == (32, 0)
    assert (stats.num_preempted_query_tokens, stats.num_preempted_hit_tokens) == (9, 4)


def test_nobody_starts_in_a_step_without_room_for_those_who_run() -> None:
    desk = Desk(num_blocks=1 + 12, max_num_batched_tokens=15)
    for start in (100, 200, 300):
        desk.add(document(start, 4))
    desk.add(document(500, 32), max_tokens=1)
    assert shape(desk.step()) == [(0, 0, 4), (1, 0, 4), (2, 0, 4), (3, 0, 3)]
    assert shape(desk.step()) == [(0, 4, 1), (1, 4, 1), (2, 4, 1), (3, 3, 12)]
    desk.add([1])  # the two blocks that are left would do for it, but not for the next chunk of the long one
    assert shape(desk.step()) == [(0, 5, 1), (1, 5, 1), (2, 5, 1)]


def test_a_request_starts_only_if_its_whole_prompt_leaves_the_watermark_free() -> None:
    desk = Desk(num_blocks=1 + 10, max_num_batched_tokens=12)
    desk.add(document(100, 4))
    desk.step()
    desk.add(
        document(200, 32), max_tokens=1
    )  # eight blocks, just what the other one leaves when it has grown
    assert shape(desk.step()) == [(0, 4, 1)]
    desk.scheduler.cancel(0, now=0.0)
    assert shape(desk.step()) == [(1, 0, 12)]


def test_tokens_in_a_block_that_is_not_full_are_uncommitted() -> None:
    desk = Desk()
    desk.add(document(100, 10))
    desk.add(document(200, 8))
    assert desk.scheduler.num_uncommitted_tokens == 0
    desk.step()
    assert desk.scheduler.num_uncommitted_tokens == 2
    desk.step()
    assert desk.scheduler.num_uncommitted_tokens == 3 + 1


def test_hits_on_blocks_in_use_need_no_room() -> None:
    desk = Desk(num_blocks=1 + 10)
    desk.add(document(100, 24))
    desk.step()
    for _ in range(2):
        desk.add([*document(100, 24), 1])
    assert shape(desk.step()) == [(0, 24, 1), (1, 24, 1), (2, 24, 1)]


def test_one_request_alone_may_take_the_whole_pool() -> None:
    desk = Desk(num_blocks=1 + 4)
    desk.add(document(100, 15), max_tokens=2)
    assert shape(desk.step()) == [(0, 0, 15)]
    assert shape(desk.step()) == [(0, 15, 1)]
    assert desk.scheduler.num_running == 0


def test_what_can_never_be_served_is_refused_when_it_arrives() -> None:
    desk = Desk(num_blocks=1 + 4, max_model_len=20)
    with pytest.raises(EmptyPromptError):
        desk.add([])
    with pytest.raises(PromptTooLongError, match=r"20 tokens.*20"):
        desk.add(document(100, 20))
    with pytest.raises(PoolTooSmallError, match=r"5 KV blocks.*4"):
        desk.add(document(100, 15), max_tokens=3)
    desk.add(document(100, 15), max_tokens=2)  # the last token's KV is never needed
    assert desk.scheduler.num_waiting == 1


def test_a_window_makes_a_long_request_fit() -> None:
    desk = Desk(num_blocks=1 + 4, max_num_batched_tokens=4, windows=(5,))
    desk.add(document(100, 60), max_tokens=30)
    while desk.scheduler.num_running + desk.scheduler.num_waiting:
        assert desk.step()


def test_history_and_bans_are_sent_only_where_sampling_needs_them() -> None:
    desk = Desk()
    desk.add([1, 2])
    desk.add([3, 4], repetition_penalty=1.5, min_tokens=1, stop_token_ids=[8])
    first = desk.step()[1].sample
    plain, penalised = (chunk.sample for chunk in desk.step())
    assert first is not None
    assert plain is not None
    assert penalised is not None
    assert plain.new_prompt_token_ids == plain.new_output_token_ids == plain.banned_token_ids == ()
    assert (first.new_prompt_token_ids, first.new_output_token_ids) == ((3, 4), ())
    assert (penalised.new_prompt_token_ids, penalised.new_output_token_ids) == ((), (TOKEN,))
    assert penalised.banned_token_ids == ()
    assert penalised.num_generated == 1


def test_a_plan_names_the_requests_that_ended_since_the_one_before() -> None:
    desk = Desk()
    first, second, third = (desk.add([i, 2], max_tokens=num) for i, num in enumerate((1, 3, 3)))
    assert desk.plan_and_apply().ended == ()
    desk.scheduler.cancel(second, now=1.0)
    assert desk.plan_and_apply().ended == (first, second)
    assert desk.plan_and_apply().ended == ()
    assert desk.plan_and_apply().ended == ()  # there is nothing to plan
    desk.add([9])
    assert desk.plan_and_apply().ended == (third,)


def test_prompt_logprobs_ask_for_the_token_after_each_position() -> None:
    desk = Desk(max_num_batched_tokens=3)
    desk.add([1, 2, 3, 4, 5], prompt_logprobs=2)
    first, second, third = (desk.step()[0] for _ in range(3))
    assert (first.prompt_logprobs, first.prompt_targets) == (2, (2, 3, 4))
    assert (second.prompt_logprobs, second.prompt_targets) == (2, (5,))
    assert (third.prompt_logprobs, third.prompt_targets) == (None, ())


@pytest.mark.parametrize("num_accepted", [0, 1, 2])
def test_positions_of_rejected_drafts_are_computed_again(num_accepted: int) -> None:
    desk = Desk()
    desk.add([1, 2, 3])
    (chunk,) = desk.scheduler.plan(now=0.0).chunks
    drafting = ScheduledChunk(0, (1, 2, 3, 8, 9), 0, 0, chunk.block_tables, chunk.sample, num_drafts=2)
    tokens = (*(8, 9)[:num_accepted], TOKEN)
    result = StepResult(1, (ChunkResult(0, tokens, num_accepted),))
    (delta,) = desk.scheduler.apply(StepPlan(1, (drafting,)), result, now=1.0)
    assert delta.token_ids == tokens
    assert shape(desk.step()) == [(0, 3 + num_accepted, 1)]


def test_an_answer_ends_inside_accepted_drafts_where_it_should() -> None:
    desk = Desk()
    desk.add([1, 2, 3], stop_token_ids=[8])
    (chunk,) = desk.scheduler.plan(now=0.0).chunks
    drafting = ScheduledChunk(0, (1, 2, 3, 8, 9), 0, 0, chunk.block_tables, chunk.sample, num_drafts=2)
    result = StepResult(1, (ChunkResult(0, (8, 9, TOKEN), 2),))
    (delta,) = desk.scheduler.apply(StepPlan(1, (drafting,)), result, now=1.0)
    assert delta.token_ids == (8,)
    assert delta.finish_reason is FinishReason.STOP


@pytest.mark.parametrize("end", ["last token", "cancelled", "failed"])
def test_a_chunk_names_its_adapter_and_the_request_holds_it_to_the_end(end: str) -> None:
    desk = Desk()
    chain = HashChain(bytes(32), BLOCK_SIZE, ExtraKeys(adapter=b"digest"), range(9))
    request = Request(1, chain, SamplingParams(max_tokens=2), 0, adapter=object())
    desk.scheduler.add(request, now=0.0)
    [chunk] = desk.step()
    assert chunk.adapter == b"digest"
    assert request.adapter is not None
    if end == "last token":
        desk.step()
    elif end == "cancelled":
        desk.scheduler.cancel(1, now=2.0)
    else:
        desk.scheduler.fail(desk.scheduler.plan(now=2.0), RuntimeError(), now=2.0)
    assert request.adapter is None
