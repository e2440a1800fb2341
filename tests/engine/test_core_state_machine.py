"""Random requests, cancellations, failures and resets on small pools, against running each request alone."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ratoon.errors import PoolTooSmallError, PromptTooLongError

DOCUMENTS = (
    tuple(1 + i % 3 for i in range(40)),
    tuple(1 + i // 3 % 5 for i in range(40)),
    (2,) * 40,
)

prompts = st.builds(
    lambda document, length, tail: document[:length] + tail,
    st.sampled_from(DOCUMENTS),
    st.sampled_from([1, 4, 7, 8, 11, 12, 16, 25, 39]),
    st.sampled_from([(), (), (1,), (2, 2, 2, 2), (3, 1, 2, 3, 1)]),
)
RARE_SETTINGS: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"salt": "a"},
    {"logprobs": 1},
    {"prompt_logprobs": 2},
    {"read_cache": False},
    {"write_cache": False},
    {"stop_token_ids": (1, 4), "min_tokens": 3, "ignore_eos": False},
]
settings_of_requests = st.builds(
    lambda rare, **settings: {**settings, **rare},
    st.sampled_from(RARE_SETTINGS),
    max_tokens=st.sampled_from([3, 8, 16, 24, None]),
    seed=st.integers(1, 2),
    priority=st.integers(-1, 1),
)


class EngineMachine(RuleBasedStateMachine):
    make_bench: Callable[..., Any]

    @initialize(
        num_blocks=st.sampled_from([7, 9, 11, 14, 18, 24, 40]),
        windows=st.sampled_from([(None,), (None, 5), (7,), (None, 2, 9), (1, None)]),
        share_in_flight=st.booleans(),
        enable_prefix_caching=st.sampled_from([True, True, True, False]),
        max_num_seqs=st.sampled_from([1, 4, 8, 8]),
        max_num_batched_tokens=st.sampled_from([1, 5, 13, 40, 90, 512]),
        max_model_len=st.sampled_from([20, 30, 45, 70]),
    )
    def start(self, **limits: Any) -> None:
        self.limits = limits
        self.bench = self.make_bench(**limits)

    @rule(prompts=st.lists(prompts, min_size=1, max_size=6), settings=settings_of_requests)
    def add(self, prompts: list[tuple[int, ...]], settings: dict[str, Any]) -> None:
        for prompt in prompts:
            try:
                self.bench.add(prompt, **settings)
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
        if hasattr(self, "bench"):
            assert self.bench.scheduler.num_running <= self.limits["max_num_seqs"]
            for plan in self.bench.runner.plans[-1:]:
                assert plan.num_tokens <= self.limits["max_num_batched_tokens"]

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.run()


def test_every_output_is_that_of_the_request_alone(make_bench: Callable[..., Any]) -> None:
    machine = type("Machine", (EngineMachine,), {"make_bench": staticmethod(make_bench)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=300,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
