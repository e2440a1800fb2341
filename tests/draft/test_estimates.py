import pytest

from ratoon.draft.estimates import FIRST_RATE, PRIOR_TOKENS, AcceptanceRate, StepCost


def test_a_straight_line_is_found() -> None:
    cost = StepCost()
    for i in range(300):
        num_tokens = 1 + 7 * i % 20
        cost.add(num_tokens, 2.0 + 0.25 * num_tokens)
    for num_tokens in (1, 10, 30):
        assert cost.seconds(num_tokens) == pytest.approx(2 + 0.25 * num_tokens, rel=0.02)


def test_steps_of_one_size_leave_the_first_guess() -> None:
    cost = StepCost()
    for _ in range(50):
        cost.add(4, 6.0)
    assert cost.seconds(4) == pytest.approx(6.0)
    assert cost.seconds(5) == pytest.approx(6.0 + 6.0 / (4 + PRIOR_TOKENS))


def test_more_tokens_never_cost_less_and_none_cost_not_less_than_nothing() -> None:
    cheaper = StepCost()
    dearer = StepCost()
    for num_tokens in range(1, 40):
        cheaper.add(num_tokens, 100.0 - num_tokens)
        dearer.add(num_tokens, float(num_tokens**3))
    assert cheaper.seconds(100) == cheaper.seconds(200)
    assert 0 < dearer.seconds(0) < 1e-6


def test_a_size_that_is_dear_is_remembered() -> None:
    """As with kernels that compute eight rows at once."""
    cost = StepCost()
    for i in range(300):
        num_tokens = 5 + i % 6
        cost.add(num_tokens, 3.0 if num_tokens <= 8 else 5.0)
    assert cost.seconds(8) == pytest.approx(3.0, rel=0.1)
    assert cost.seconds(9) == pytest.approx(5.0, rel=0.1)


def test_one_slow_step_is_soon_forgotten() -> None:
    cost = StepCost()
    for i in range(300):
        cost.add(1 + i % 4, 100.0 if i == 100 else 2.0 + 0.25 * (1 + i % 4))
    assert cost.seconds(1) == pytest.approx(2.25, rel=0.25)


def test_a_machine_that_changes_is_followed() -> None:
    cost = StepCost()
    for i in range(3000):
        cost.add(1 + i % 8, (1 + i % 8) * (1.0 if i < 2000 else 3.0))
    assert cost.seconds(5) == pytest.approx(15.0, rel=0.05)
    assert cost.seconds(9) == pytest.approx(27.0, rel=0.05)


def test_before_the_first_step_everything_costs_next_to_nothing() -> None:
    assert 0 < StepCost().seconds(9) < 1e-6


def test_before_any_trial_the_first_rate_holds() -> None:
    assert AcceptanceRate(10).rate == FIRST_RATE
    assert AcceptanceRate(10, AcceptanceRate(100)).rate == FIRST_RATE


def test_the_rate_follows_the_trials() -> None:
    found = AcceptanceRate(20)
    for i in range(1000):
        found.add(accepted=i % 4 != 0)
    assert abs(found.rate - 0.75) < 0.05


def test_old_trials_fade() -> None:
    found = AcceptanceRate(20)
    for accepted in [True] * 1000 + [False] * 60:
        found.add(accepted=accepted)
    assert found.rate < 0.1


def test_a_new_rate_leans_on_the_others_and_adds_to_them() -> None:
    others = AcceptanceRate(200)
    one = AcceptanceRate(20, others)
    for _ in range(100):
        one.add(accepted=True)
    newcomer = AcceptanceRate(20, others)
    assert newcomer.rate == others.rate > 0.95
    for _ in range(20):
        newcomer.add(accepted=False)
    assert newcomer.rate < 0.15 < others.rate
