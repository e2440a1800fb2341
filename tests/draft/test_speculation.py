"""What pays: chances against costs, as the engine measured them."""

from collections.abc import Callable, Sequence

import pytest

from ratoon.draft.drafter import NO_GUESS, Guess
from ratoon.draft.speculation import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PROBE_SHARE,
    REST_STEPS,
    Speculation,
    num_equal,
)
from ratoon.request.request import Request
from ratoon.sched.chunk import make_chunk
from ratoon.sched.delta import RequestDelta
from ratoon.step import StepPlan

MakeRequest = Callable[..., Request]
Right = Callable[[Request, int], bool]


class Scripted:
    """Guesses what it is told to, in the kind it is told, and notes how much was wanted."""

    def __init__(self, *, is_free: bool = True, kind: int = 0, draft_s: float = 0) -> None:
        self.is_free = is_free
        self.draft_s = draft_s
        self.kind = kind
        self.wanted: list[list[int]] = []
        self.is_broken = False
        self.num_resets = 0

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[Guess]:
        self.wanted.append([count for _, count in wanted])
        if self.is_broken:
            raise ValueError("no idea")
        return [Guess([5] * count, self.kind) if count else NO_GUESS for _, count in wanted]

    def round_seconds(self, num_requests: int) -> float:
        return self.draft_s

    def reset(self) -> None:
        self.num_resets += 1

    def reset_cache(self) -> None:
        raise AssertionError("no test asks for it")


class Loop:
    """Plays the engine: a step takes `base_s` and `token_s` per token, guessing `draft_s`."""

    def __init__(self, speculation: Speculation, base_s: float, token_s: float, draft_s: float = 0) -> None:
        self.speculation = speculation
        self.base_s = base_s
        self.token_s = token_s
        self.draft_s = draft_s

    def step(self, requests: Sequence[Request], right: Right) -> list[int]:
        """Run a step in which a draft at each place is right or not; return the numbers of drafts."""
        drafts = self.speculation.propose(requests)
        chunks, deltas = [], []
        for request in requests:
            known = request.num_known
            guess = tuple(drafts.get(request.id, ()))
            chunks.append(make_chunk(request, known - 1, known, known - 1, guess))
            num_right = 0
            while num_right < len(guess) and right(request, num_right):
                num_right += 1
            sampled = 5 if right(request, num_right) else 6
            deltas.append(RequestDelta(request.id, (5,) * num_right + (sampled,)))
        plan = StepPlan(1, tuple(chunks))
        seconds = self.base_s + self.token_s * plan.num_tokens
        self.speculation.learn(plan, deltas, self.draft_s, seconds)
        return [chunk.num_drafts for chunk in chunks]


def always(request: Request, place: int) -> bool:
    return True


def never(request: Request, place: int) -> bool:
    return False


def settled(loop: Loop, requests: Sequence[Request], right: Right) -> list[int]:
    for _ in range(100):
        counts = loop.step(requests, right)
    return counts


def test_drafts_that_are_right_are_taken_in_full(make_request: MakeRequest) -> None:
    loop = Loop(Speculation(Scripted(), 6), base_s=8, token_s=1)
    assert settled(loop, [make_request([1, 2])], always) == [6]


def test_drafts_that_are_wrong_are_given_up(make_request: MakeRequest) -> None:
    loop = Loop(Speculation(Scripted(), 6), base_s=8, token_s=1)
    assert settled(loop, [make_request([1, 2])], never) == [0]


def test_free_guesses_that_begin_to_be_right_are_taken_up_again(make_request: MakeRequest) -> None:
    loop = Loop(Speculation(Scripted(), 6), base_s=8, token_s=1)
    request = make_request([1, 2])
    assert settled(loop, [request], never) == [0]
    assert [loop.step([request], always) for _ in range(40)][-1] == [6]


def test_what_pays_alone_does_not_pay_in_a_full_batch(make_request: MakeRequest) -> None:
    half = iter(range(10**9))

    def sometimes(request: Request, place: int) -> bool:
        return next(half) % 5 < 2

    loop = Loop(Speculation(Scripted(), 6), base_s=4, token_s=1)
    alone, *others = [make_request([1, 2]) for _ in range(32)]
    assert sum(sum(loop.step([alone], sometimes)) for _ in range(50)) > 40
    for _ in range(40):
        loop.step([alone, *others], sometimes)
    assert sum(sum(loop.step([alone, *others], sometimes)) for _ in range(20)) < 20 * 32 // 8


def test_the_likelier_requests_get_the_drafts(make_request: MakeRequest) -> None:
    loop = Loop(Speculation(Scripted(), 4), base_s=4, token_s=1)
    good, bad = make_request([1, 2]), make_request([1, 2])
    assert settled(loop, [good, bad], lambda request, place: request is good) == [4, 0]


def test_kinds_of_guesses_are_judged_apart(make_request: MakeRequest) -> None:
    drafter = Scripted(kind=1)
    loop = Loop(Speculation(drafter, 4), base_s=8, token_s=1)
    request = make_request([1, 2])
    assert settled(loop, [request], never) == [0]
    drafter.kind = 2
    assert settled(loop, [request], always) == [4]
    drafter.kind = 1
    assert loop.step([request], never) == [0]


def test_guesses_that_do_not_pay_are_made_now_and_then_only(make_request: MakeRequest) -> None:
    drafter = Scripted()
    loop = Loop(Speculation(drafter, 4), base_s=8, token_s=1)
    requests = [make_request([1, 2]), make_request([1, 2])]
    settled(loop, requests, never)
    drafter.wanted.clear()
    for _ in range(3 * REST_STEPS):
        loop.step(requests, never)
    assert sorted(drafter.wanted) == [[0, 0]] * 3 * (REST_STEPS - 1) + [[4, 4]] * 3


def test_a_draft_model_that_is_too_slow_takes_a_small_share_of_the_time(make_request: MakeRequest) -> None:
    drafter = Scripted(is_free=False, draft_s=20)
    loop = Loop(Speculation(drafter, 4), base_s=8, token_s=1, draft_s=20)
    requests = [make_request([1, 2]), make_request([1, 2])]
    for _ in range(1000):
        loop.step(requests, always)
    asked = [wanted for wanted in drafter.wanted if any(wanted)]
    assert asked[-1] == [1, 0]
    assert len(asked) * 20 <= 1.2 * PROBE_SHARE * 10 * 1000


def test_a_draft_model_comes_back_when_it_pays(make_request: MakeRequest) -> None:
    loop = Loop(Speculation(Scripted(is_free=False, draft_s=0.5), 4), base_s=8, token_s=1, draft_s=0.5)
    request = make_request([1, 2])
    assert settled(loop, [request], never) in ([0], [1])
    for _ in range(400):
        counts = loop.step([request], always)
    assert counts == [4]


def test_nothing_is_wanted_past_the_end_of_an_answer(make_request: MakeRequest) -> None:
    drafter = Scripted()
    request = make_request([1, 2, 3])
    for limit, count in ((5, 1), (4, 0), (20, 6)):
        request.token_limit = limit
        Speculation(drafter, 6).propose([request])
        assert drafter.wanted.pop() == [count]


def test_a_drafter_that_fails_is_tried_again_later_and_later(make_request: MakeRequest) -> None:
    drafter = Scripted()
    speculation = Speculation(drafter, 4)
    request = make_request([1, 2])
    drafter.is_broken = True
    pauses = []
    for _ in range(10):
        assert speculation.propose([request]) == {}
        pauses.append(speculation.stats.num_paused_steps)
        for _ in range(pauses[-1]):
            assert speculation.propose([request]) == {}
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LONGEST_PAUSE
    assert len(drafter.wanted) == speculation.stats.num_failures == drafter.num_resets == 10


def test_a_drafter_that_works_again_is_used_and_trusted_again(make_request: MakeRequest) -> None:
    drafter = Scripted()
    speculation = Speculation(drafter, 4)
    request = make_request([1, 2])
    for _ in range(2):
        drafter.is_broken = True
        speculation.propose([request])
        assert speculation.stats.num_paused_steps == FIRST_PAUSE
        drafter.is_broken = False
        for _ in range(FIRST_PAUSE):
            speculation.propose([request])
        assert speculation.propose([request]) == {request.id: [5, 5, 5, 5]}


def test_steps_with_prompts_teach_nothing_about_costs(make_request: MakeRequest) -> None:
    speculation = Speculation(Scripted(), 4)
    request = make_request([1, 2, 3, 4])
    plan = StepPlan(1, (make_chunk(request, 0, 4, 0),))
    speculation.propose([])
    speculation.learn(plan, [RequestDelta(request.id, (5,))], 0, 100.0)
    assert speculation._cost.seconds(4) < 1e-6
    assert speculation.stats.num_proposals == 0


@pytest.mark.parametrize(
    ("one", "other", "count"), [([], [1], 0), ([1, 2], [1, 2, 3], 2), ([1, 9], [1, 2], 1), ([4], [5], 0)]
)
def test_equal_beginnings_are_counted(one: list[int], other: list[int], count: int) -> None:
    assert num_equal(one, other) == num_equal(other, one) == count


@pytest.mark.parametrize("num_good", [1, 8])
def test_a_draft_model_is_asked_where_enough_requests_share_a_round(
    make_request: MakeRequest, num_good: int
) -> None:
    drafter = Scripted(is_free=False, draft_s=5)  # a round takes this long for one as for all
    loop = Loop(Speculation(drafter, 1), base_s=8, token_s=0.1, draft_s=5)
    requests = [make_request([1, 2]) for _ in range(8)]
    good = requests[:num_good]
    for i in range(80):  # steps of all sizes teach what they cost
        loop.step(requests[: 1 + i % 8], lambda request, place: request in good)
    for _ in range(800):
        counts = loop.step(requests, lambda request, place: request in good)
    assert counts in ([[1] * 8] if num_good == 8 else [[0] * 8, [1, *[0] * 7]])
