"""Drafts in the engine's loop, on the model that is nothing but memory."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ratoon.draft.drafter import Guess
from ratoon.draft.speculation import FIRST_PAUSE, Speculation
from ratoon.request.finish import FinishReason
from ratoon.request.request import Request

MakeBench = Callable[..., Any]
PROMPT = tuple(range(1, 15))


class Oracle(Speculation):
    """Guesses the next tokens right; `wrong_after` counts right drafts before a wrong one."""

    def __init__(self, bench: Any, count: int, wrong_after: int | None = None) -> None:
        self.bench = bench
        self.count = count
        self.wrong_after = wrong_after
        super().__init__(Silent(), count)

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        drafts = {}
        for request in requests:
            guess = self.bench.alone(request).output[request.num_generated :][: self.count]
            if self.wrong_after is not None and len(guess) > self.wrong_after:
                guess[self.wrong_after] = (guess[self.wrong_after] + 1) % 29
            drafts[request.id] = guess
        return drafts


class Silent:
    is_free = True

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Guess]:
        return [Guess() for _ in wanted]

    def round_seconds(self, num_requests: int) -> float:
        return 0.0

    def reset(self) -> None:
        pass

    def reset_cache(self) -> None:
        self.was_reset = True


class Failing(Silent):
    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Guess]:
        raise ValueError("no idea")


def with_oracle(make_bench: MakeBench, count: int, wrong_after: int | None = None, **limits: Any) -> Any:
    bench = make_bench(**limits)
    bench.core._speculation = Oracle(bench, count, wrong_after)
    return bench


def test_accepted_drafts_save_steps(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 3)
    bench.output_of(PROMPT, max_tokens=13)
    assert len(bench.runner.plans) == 1 + 3  # the prompt's step has one token, each other one four
    drafts = bench.core.draft_stats
    assert (drafts.num_proposals, drafts.num_drafts, drafts.num_accepted_drafts) == (3, 9, 9)
    assert drafts.num_accepted_by_position == [3, 3, 3]


def test_drafts_of_all_requests_are_verified_in_one_step_beside_a_prompt(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 3, max_num_batched_tokens=30)
    for _ in range(3):
        bench.add(PROMPT[: bench.core.scheduler.num_waiting + 3], max_tokens=20)
    bench.step()
    bench.add(range(1, 29), max_tokens=1)
    bench.step()
    plan = bench.runner.plans[-1]
    assert [chunk.num_drafts for chunk in plan.chunks] == [3, 3, 3, 0]
    assert plan.num_tokens == 30  # 3 x (1 + 3), and 18 of the prompt
    bench.run()


def test_every_running_request_moves_before_anybody_gets_drafts(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 3, max_num_batched_tokens=6)
    for i in range(4):
        bench.add([1 + i], max_tokens=9)
    bench.step()
    bench.step()
    assert [chunk.num_drafts for chunk in bench.runner.plans[-1].chunks] == [2, 0, 0, 0]
    bench.run()


def test_nothing_is_drafted_past_the_last_token_allowed(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 8)
    bench.output_of(PROMPT, max_tokens=6)
    assert [plan.chunks[0].num_drafts for plan in bench.runner.plans] == [0, 4]
    assert bench.runner.plans[-1].chunks[0].first_position + 5 == len(PROMPT) + 6 - 1


def test_a_stop_token_among_accepted_drafts_ends_the_answer_there(make_bench: MakeBench) -> None:
    plain = make_bench().output_of(PROMPT, max_tokens=12)
    bench = make_bench()
    request = bench.request(PROMPT, max_tokens=12, stop_token_ids=(plain[4],))

    class Unstopped(Oracle):
        def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
            return {request.id: plain[request.num_generated :] for request in requests}

    bench.core._speculation = Unstopped(bench, 12)
    request = bench.add(PROMPT, max_tokens=12, stop_token_ids=(plain[4],))
    bench.run()
    assert bench.output(request) == plain[: plain.index(plain[4]) + 1]
    assert bench.last(request).finish_reason is FinishReason.STOP
    assert request.num_accepted_drafts == len(bench.output(request)) - 1


@pytest.mark.parametrize("wrong_after", range(6))
def test_only_blocks_whose_tokens_were_all_accepted_can_be_found(
    make_bench: MakeBench, wrong_after: int
) -> None:
    bench = with_oracle(make_bench, 6, wrong_after)
    request = bench.add(PROMPT, max_tokens=30)
    bench.step()
    bench.step()
    num_computed = len(PROMPT) + 1 + wrong_after
    assert request.num_computed == num_computed
    assert bench.cache.num_committed(request.id) == num_computed // 4 * 4
    assert (
        len(bench.cache.block_tables(request.id)[0]) * 4 >= len(PROMPT) + 7
    )  # slots of rejected drafts stay
    bench.run()


def test_without_blocks_for_drafts_the_step_goes_on_without_them(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 4, num_blocks=5)  # 16 slots
    bench.output_of(range(1, 13), max_tokens=5)
    assert [plan.chunks[0].num_drafts for plan in bench.runner.plans] == [0, 3]


def test_nobody_is_preempted_for_a_draft(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 5, num_blocks=9)
    bench.add(range(1, 13), max_tokens=9)
    bench.add(range(2, 14), max_tokens=2)
    bench.run()
    assert bench.scheduler.num_preemptions == 0
    assert [chunk.num_drafts for chunk in bench.runner.plans[1].chunks] == [0, 0]


def test_a_window_lets_go_only_what_accepted_tokens_have_passed(make_bench: MakeBench) -> None:
    bench = with_oracle(make_bench, 7, 0, windows=(None, 5))
    bench.output_of(PROMPT, max_tokens=30)
    assert all(plan.chunks[0].num_drafts for plan in bench.runner.plans[1:-1])


def test_a_drafter_that_fails_is_left_alone_for_a_while_and_answers_go_on(
    make_bench: MakeBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(speculation=Speculation(Failing(), 4))
    bench.output_of(PROMPT, max_tokens=5)
    assert bench.core.draft_stats.num_failures == 1
    assert [record.message for record in caplog.records] == [
        f"Guessing failed; the engine goes on without for {FIRST_PAUSE} steps."
    ]


def test_resetting_the_cache_resets_the_drafters(make_bench: MakeBench) -> None:
    drafter = Silent()
    bench = make_bench(speculation=Speculation(drafter, 4))
    bench.core.reset_cache()
    assert drafter.was_reset


def test_without_speculation_the_counts_are_zero(make_bench: MakeBench) -> None:
    bench = make_bench()
    bench.output_of(PROMPT)
    assert bench.core.draft_stats.num_proposals == 0
