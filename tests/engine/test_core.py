from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ratoon.errors import EngineError, PromptTooLongError
from ratoon.request.finish import FinishReason, Timings, Usage
from ratoon.request.hit_limit import HitLimit, LimitReason
from ratoon.step import SharedReads

MakeBench = Callable[..., Any]

PREFIX = [1 + i % 13 for i in range(64)]


def test_a_request_runs_to_its_end(make_bench: MakeBench) -> None:
    bench = make_bench()
    request = bench.add([1, 2, 3], max_tokens=3)
    bench.run()
    first, second, last = bench.deltas[request.id]
    assert len(bench.output(request)) == 3
    assert first.finish_reason is second.finish_reason is None
    assert last.finish_reason is FinishReason.LENGTH
    assert first.usage == Usage(3, 0, 1, HitLimit(LimitReason.COMPLETE))
    assert second.usage is None
    assert last.usage == Usage(3, 0, 3, HitLimit(LimitReason.COMPLETE), committed_tokens=4)
    # The clock ticks at arrival, and five times in each step: begun, drafted, planned, executed, applied.
    assert last.timings == Timings(arrival_s=0, first_scheduled_s=2, first_token_s=4, finished_s=14)
    assert (last.timings.queue_s, last.timings.ttft_s, last.timings.e2e_s) == (2, 4, 14)


def test_a_step_reports_what_it_did(make_bench: MakeBench) -> None:
    bench = make_bench(max_num_seqs=2)
    for _ in range(3):
        bench.add([1, 2, 3])
    bench.step()
    stats = bench.core.last_step
    assert (stats.num_tokens, stats.num_scheduled, stats.num_running, stats.num_waiting) == (6, 2, 2, 1)
    assert (stats.draft_s, stats.plan_s, stats.execute_s, stats.apply_s) == (1, 1, 1, 1)


def test_the_totals_count_every_step_and_the_failures_in_a_row(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.add([1, 2, 3], max_tokens=2)
    bench.run()
    for _ in range(2):
        bench.add([1, 2, 3])
        bench.runner.failure = OSError("the device is gone")
        bench.step()
    totals = bench.core.totals
    assert (totals.num_steps, totals.num_failed_steps, totals.num_failed_in_a_row) == (4, 2, 2)
    assert (totals.draft_s, totals.plan_s, totals.execute_s, totals.apply_s) == (4, 4, 4, 4)
    bench.add([1, 2, 3])
    bench.step()
    assert totals.num_failed_in_a_row == 0


def test_block_reads_that_a_step_was_spared_are_added_up(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    execute = bench.runner.execute
    reads = (SharedReads(0, (0, 1, 2), 5), SharedReads(1, (0, 1), 4))
    monkeypatch.setattr(bench.runner, "execute", lambda plan: execute(plan)._replace(shared_reads=reads))
    bench.add([1, 2, 3], max_tokens=2)
    bench.run()
    assert bench.core.last_step.shared_reads == reads
    assert bench.core.last_step.num_saved_block_reads == 2 * 5 + 1 * 4
    bench.runner.failure = OSError("the device is gone")
    bench.add([1, 2, 3])
    bench.step()
    assert bench.core.last_step.shared_reads == ()
    assert bench.core.totals.num_saved_block_reads == 2 * 14


def test_a_decoding_request_costs_the_cache_nothing_until_its_block_is_full(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench()
    for i in range(8):
        bench.add([1, 2, 3 + i], max_tokens=40)
    bench.step()
    calls: Counter[str] = Counter()

    def count_calls(name: str) -> None:
        method = getattr(bench.cache, name)

        def counted(*args: Any, **settings: Any) -> Any:
            calls[name] += 1
            return method(*args, **settings)

        monkeypatch.setattr(bench.cache, name, counted)

    for name in ("match", "reserve", "announce", "commit", "release"):
        count_calls(name)
    for _ in range(4):  # tokens in a block
        bench.step()
    assert calls == {"reserve": 8, "announce": 8, "commit": 8}


def test_without_requests_a_step_does_nothing(make_bench: MakeBench) -> None:
    bench = make_bench()
    assert not bench.core.has_work
    assert bench.core.step() == ()
    assert not bench.runner.plans


def test_a_refused_request_leaves_no_trace(make_bench: MakeBench) -> None:
    bench = make_bench(max_model_len=10)
    with pytest.raises(PromptTooLongError):
        bench.add(range(1, 20))
    assert not bench.core.has_work


@pytest.mark.parametrize("budget", [1, 7, 64, 100, 512])
def test_requests_with_an_equal_prefix_that_arrive_together_compute_it_once(
    make_bench: MakeBench, budget: int
) -> None:
    bench = make_bench(num_blocks=200, max_num_batched_tokens=budget)
    requests = [bench.add([*PREFIX, 20, 20 + i, 21], max_tokens=1) for i in range(16)]
    bench.run()
    assert bench.computed_tokens == len(PREFIX) + 16 * 3
    assert sum(bench.last(request).usage.computed_tokens for request in requests) == bench.computed_tokens
    if budget == 512:
        assert len(bench.runner.plans) == 1


@pytest.mark.parametrize("budget", [1, 7, 64, 512])
def test_of_equal_full_block_prompts_all_but_one_run_their_last_token_only(
    make_bench: MakeBench, budget: int
) -> None:
    bench = make_bench(num_blocks=200, max_num_batched_tokens=budget)
    for _ in range(16):
        bench.add(PREFIX, max_tokens=1)
    bench.run()
    assert bench.computed_tokens == len(PREFIX) + 15
    full_hits = [chunk for plan in bench.runner.plans for chunk in plan.chunks if chunk.write_from == 64]
    assert [chunk.first_position for chunk in full_hits] == [63] * 15


def test_without_sharing_in_flight_each_computes_its_own_copy_and_gets_the_same(
    make_bench: MakeBench,
) -> None:
    outputs = []
    for share_in_flight in (True, False):
        bench = make_bench(num_blocks=400, share_in_flight=share_in_flight, max_num_batched_tokens=2000)
        requests = [bench.add([*PREFIX, 20, 20 + i, 21], max_tokens=5) for i in range(16)]
        bench.step()
        computed = bench.computed_tokens
        assert computed == (len(PREFIX) + 16 * 3 if share_in_flight else 16 * (len(PREFIX) + 3))
        bench.run()
        outputs.append([bench.output(request) for request in requests])
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("windows", [(None,), (None, 6), (9,)])
@pytest.mark.parametrize("budget", [3, 17, 512])
def test_a_pool_for_one_long_request_serves_twenty(
    make_bench: MakeBench, windows: tuple[int | None, ...], budget: int
) -> None:
    needed = make_bench(windows=windows).cache.blocks_for(60, max_chunk=budget)
    bench = make_bench(num_blocks=needed + 1, windows=windows, max_num_batched_tokens=budget)
    requests = [bench.add([1 + (i * j) % 7 for j in range(10 + i)], max_tokens=31 - i) for i in range(19)]
    requests.append(bench.add([3] * 20, max_tokens=41))
    bench.run()
    assert all(bench.last(request).finish_reason is FinishReason.LENGTH for request in requests)
    if windows == (None,) and budget == 512:
        assert bench.scheduler.num_preemptions > 0


@pytest.mark.parametrize("share_in_flight", [True, False])
def test_a_request_in_prefill_takes_over_what_another_has_computed_meanwhile(
    make_bench: MakeBench, share_in_flight: bool
) -> None:
    """The second prompt is the first one with its answer; two tokens a step let both grow side by side."""
    prompt = [1, 2, 3, 4, 5, 6]
    oracle = make_bench()
    answer = oracle.output_of(prompt, max_tokens=30)
    bench = make_bench(max_num_batched_tokens=2, share_in_flight=share_in_flight)
    bench.add(prompt, max_tokens=30)
    for _ in range(6):
        bench.step()
    second = bench.add(prompt + answer[:25], max_tokens=1)
    bench.run()
    # At its admission two blocks were there; with sharing, those that followed came one by one.
    assert (bench.last(second).usage.cached_tokens > 8) == share_in_flight


def test_a_failed_step_ends_only_its_own_requests(make_bench: MakeBench) -> None:
    bench = make_bench(max_num_seqs=2)
    failing = [bench.add(PREFIX), bench.add([*PREFIX, 1])]
    waiting = bench.add(PREFIX)
    bench.runner.failure = OSError("the device is gone")
    bench.step()
    for request in failing:
        last = bench.last(request)
        assert last.finish_reason is FinishReason.FAILED
        assert isinstance(last.error, EngineError)
        assert isinstance(last.error.__cause__, OSError)
    bench.run()
    last = bench.last(waiting)
    assert last.finish_reason is FinishReason.LENGTH
    assert last.error is None
    assert last.usage.cached_tokens == 0, "what the failed step was to compute must not be found"


def test_running_requests_outside_the_failed_step_go_on_with_what_they_have(make_bench: MakeBench) -> None:
    bench = make_bench(max_num_batched_tokens=4)
    patient = bench.add([1, 2, 3])
    bench.step()
    urgent = bench.add(PREFIX, priority=-1)
    bench.step()
    bench.runner.failure = OSError("the device is gone")
    bench.step()  # the urgent one takes the whole budget
    assert bench.last(urgent).finish_reason is FinishReason.FAILED
    bench.run()
    assert bench.last(patient).finish_reason is FinishReason.LENGTH


def test_ctrl_c_in_a_step_leaves_an_engine_that_goes_on(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.core.add(bench.request([1, 2, 3]))
    bench.runner.failure = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.core.step()
    assert not bench.core.has_work
    assert bench.cache.num_free_blocks == bench.cache.num_usable_blocks
    bench.core.add(bench.request([1, 2, 3], max_tokens=1))
    (delta,) = bench.core.step()
    assert delta.finish_reason is FinishReason.LENGTH


def test_cancelling_frees_the_blocks_at_once(make_bench: MakeBench) -> None:
    bench = make_bench(max_num_seqs=1)
    running, waiting = bench.add(PREFIX, max_tokens=50), bench.add(PREFIX)
    bench.step()
    bench.step()
    for request, completion_tokens in ((running, 2), (waiting, 0)):
        last = bench.core.cancel(request.id)
        assert last.finish_reason is FinishReason.CANCELLED
        assert last.usage.completion_tokens == completion_tokens
        assert last.token_ids == ()
    assert bench.cache.num_free_blocks == bench.cache.num_usable_blocks
    assert bench.core.cancel(running.id) is None
    assert not bench.core.has_work


def test_after_a_reset_running_requests_finish_and_nothing_old_is_found(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.add(PREFIX, max_tokens=10)
    bench.step()
    report = bench.core.reset_cache()
    assert report.num_dropped_blocks == len(PREFIX) // 4
    late = bench.add(PREFIX)
    bench.run()
    assert bench.last(late).usage.cached_tokens == 0


def test_prompt_logprobs_cover_the_whole_prompt_and_read_no_cached_block(make_bench: MakeBench) -> None:
    bench = make_bench(max_num_batched_tokens=10)
    bench.add(PREFIX, max_tokens=1)
    scored = bench.add(PREFIX, prompt_logprobs=3, max_tokens=2)
    single = bench.add([5], prompt_logprobs=0, max_tokens=1)
    bench.run()
    assert bench.last(scored).usage.cached_tokens == 0
    assert len(bench.deltas[scored.id][0].prompt_logprobs) == len(PREFIX)
    assert bench.deltas[scored.id][1].prompt_logprobs == ()
    assert bench.last(single).prompt_logprobs == (None,)


def test_a_prompt_scored_afresh_is_still_committed(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.add(PREFIX, prompt_logprobs=3)
    bench.run()
    reader = bench.add(PREFIX)
    bench.run()
    assert bench.last(reader).usage.cached_tokens == len(PREFIX) - 1


def test_a_request_that_does_not_write_the_cache_leaves_nothing_to_find(make_bench: MakeBench) -> None:
    bench = make_bench(windows=(None, 5))
    together = [bench.add(PREFIX, write_cache=False), bench.add(PREFIX, write_cache=False)]
    bench.run()
    assert [bench.last(request).usage.cached_tokens for request in together] == [0, 0]
    assert bench.cache.pool.num_keys == 0


def test_a_request_that_does_not_read_the_cache_computes_afresh_and_commits(make_bench: MakeBench) -> None:
    bench = make_bench(num_blocks=100)
    bench.add(PREFIX, read_cache=False)
    fresh = bench.add(PREFIX, read_cache=False)
    reader = bench.add(PREFIX)
    bench.run()
    assert bench.last(fresh).usage.cached_tokens == 0
    assert bench.last(reader).usage.cached_tokens == len(PREFIX) - 1


def test_a_request_is_not_lost_with_a_later_step_that_it_has_no_part_in(make_bench: MakeBench) -> None:
    """The second request builds on a block of the first one's step without filling one itself."""
    bench = make_bench(max_num_batched_tokens=6)
    bench.add([1, 2, 3, 4, 5], max_tokens=20)
    patient = bench.add([1, 2, 3, 4, 6], max_tokens=20)
    bench.step()
    urgent = bench.add(PREFIX, priority=-1)
    bench.step()
    bench.runner.failure = OSError("the device is gone")
    bench.step()  # the urgent one takes the whole budget
    assert bench.last(urgent).finish_reason is FinishReason.FAILED
    bench.run()
    assert bench.last(patient).usage.cached_tokens == 4


def test_prompt_logprobs_are_complete_after_a_preemption_within_the_prompt(make_bench: MakeBench) -> None:
    bench = make_bench(num_blocks=1 + 18, max_num_batched_tokens=4)
    bench.add([1, 2, 3], max_tokens=40)
    bench.step()
    scored = bench.add(PREFIX, prompt_logprobs=1, max_tokens=1)
    bench.run()
    assert bench.scheduler.num_preemptions > 0
    assert len(bench.last(scored).prompt_logprobs) == len(PREFIX)


@pytest.mark.parametrize("windows", [(None,), (None, 6), (9,), (1, None), (None, 5, 13)], ids=str)
def test_what_a_request_committed_is_a_hit_for_whoever_goes_on_from_it(
    make_bench: MakeBench, windows: tuple[int | None, ...]
) -> None:
    """The pool is so small that a request evicts what lies behind its own windows."""
    for budget in (3, 16):
        needed = make_bench(windows=windows).cache.blocks_for(60, max_chunk=budget)
        for length in range(1, 40):
            bench = make_bench(num_blocks=needed + 1, windows=windows, max_num_batched_tokens=budget)
            request = bench.add([1 + i % 7 for i in range(length)], max_tokens=1 + length % 9)
            bench.run()
            assert request.num_committed == (request.num_known - 1) // 4 * 4
            again = bench.add(request.chain.tokens, max_tokens=1)
            bench.run()
            assert bench.last(again).usage.cached_tokens == request.num_committed


def test_blocks_behind_a_window_are_free_while_the_request_runs(make_bench: MakeBench) -> None:
    bench = make_bench(windows=(None, 8), num_blocks=100, max_num_batched_tokens=16)
    request = bench.add([1 + i % 7 for i in range(100)], max_tokens=60)
    while bench.core.has_work:
        bench.step()
        if not request.block_tables:
            break
        full, sliding = request.block_tables
        num_kept = len(sliding) - sliding.count(0)
        assert num_kept <= (2 + 1 if request.num_generated > 1 else 2 + 5)
        assert bench.cache.num_usable_blocks - bench.cache.num_free_blocks == len(full) + num_kept
    assert request.num_generated == 60
