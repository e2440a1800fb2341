"""Random requests, cancellations, failures and resets on small pools, against running each request alone.

Half of the engines verify drafts of a drafter that is often wrong and never modest.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ratoon.errors import PoolTooSmallError, PromptTooLongError

DOCUMENTS: tuple[tuple[int | float, ...], ...] = (
    tuple(1 + i % 3 for i in range(40)),
    tuple(1 + i // 3 % 5 for i in range(40)),
    (2,) * 40,
    (
        1,
        2,
        *(0.5 + i // 3 for i in range(15)),
        1,
        0.5,
        *(0.5 + i // 3 for i in range(15)),
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ),
)

RARE_SETTINGS: list[dict[str, Any]] = [
    {"salt": "a"},
    {"adapter": b"poet"},
    {"adapter": b"poet", "prompt_logprobs": 1},
    {"logprobs": 1},
    {"prompt_logprobs": 2},
    {"read_cache": False},
    {"write_cache": False},
    {"stop_token_ids": (1, 4), "min_tokens": 3, "ignore_eos": False},
]


def random_prompt(random: Random) -> tuple[int | float, ...]:
    length = random.choice([1, 4, 7, 8, 11, 12, 16, 17, 25])
    tail = random.choice([(), (), (1,), (2, 2, 2, 2), (3, 1, 2, 3, 1), (0.5,), (0.25, 1, 0.5)])
    return random.choice(DOCUMENTS)[:length] + tail


def random_settings(random: Random) -> dict[str, Any]:
    return {
        "max_tokens": random.choice([3, 8, 16, 24, None]),
        "seed": random.choice([1, 2]),
        "priority": random.choice([-1, 0, 0, 1]),
        **(random.choice(RARE_SETTINGS) if random.random() < 0.3 else {}),
    }


def random_limits(random: Random) -> dict[str, Any]:
    return {
        "num_blocks": random.choice([9, 14, 20, 28, 40, 60]),
        "windows": random.choice([(None,), (None,), (None, 5), (7,), (None, 2, 9), (1, None)]),
        "share_in_flight": random.random() < 0.7,
        "enable_prefix_caching": random.random() < 0.9,
        "max_num_seqs": random.choice([1, 4, 8, 16]),
        "max_num_batched_tokens": random.choice([1, 6, 13, 24, 40, 90, 512]),
        "max_model_len": random.choice([20, 30, 45]),
        "hostile_seed": random.choice([None, random.random()]),
    }


# Hypothesis chooses what happens when; details come from seeds, so that crowds in small pools stay frequent.
seeds = st.integers(0, 2**32)


class EngineMachine(RuleBasedStateMachine):
    make_bench: Callable[..., Any]

    @initialize(seed=seeds)
    def start(self, seed: int) -> None:
        self.limits = random_limits(Random(seed))
        self.bench = self.make_bench(**self.limits)

    @rule(seed=seeds, arrivals=st.integers(1, 8))
    def add(self, seed: int, arrivals: int) -> None:
        random = Random(seed)
        for _ in range(arrivals):
            prompt = random_prompt(random)
            try:
                self.bench.add(prompt, **random_settings(random))
            except PromptTooLongError:
                assert len(prompt) >= self.limits["max_model_len"]
            except PoolTooSmallError:
                assert self.limits["num_blocks"] < 40

    @rule(times=st.integers(1, 4))
    def step(self, times: int) -> None:
        for _ in range(times):
            self.bench.step()

    @rule()
    def a_step_fails(self) -> None:
        self.bench.runner.failure = OSError("the device is gone")
        self.bench.step()
        self.bench.runner.failure = None

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.bench.requests:
            self.bench.cancel(data.draw(st.sampled_from(list(self.bench.requests.values()))))

    @rule()
    def reset_the_cache(self) -> None:
        self.bench.core.reset_cache()

    @invariant()
    def limits_hold(self) -> None:
        assert self.bench.scheduler.num_running <= self.limits["max_num_seqs"]
        for plan in self.bench.runner.plans[-1:]:
            assert plan.num_tokens <= self.limits["max_num_batched_tokens"]

    def teardown(self) -> None:
        self.bench.run()


def test_every_output_is_that_of_the_request_alone(make_bench: Callable[..., Any]) -> None:
    machine = type("Machine", (EngineMachine,), {"make_bench": staticmethod(make_bench)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=120,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
