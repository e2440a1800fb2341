import pytest

from ratoon.draft.step_cost import PRIOR_TOKENS, StepCost


def test_a_straight_line_is_found() -> None:
    cost = StepCost()
    for i in range(300):
        num_tokens = 1 + 7 * i % 20
        cost.add(num_tokens, 2.0 + 0.25 * num_tokens)
    assert cost.per_token == pytest.approx(0.25, rel=0.02)
    assert cost.seconds(30) == pytest.approx(9.5, rel=0.02)


def test_steps_of_one_size_leave_the_first_guess() -> None:
    cost = StepCost()
    for _ in range(50):
        cost.add(4, 6.0)
    assert cost.seconds(4) == pytest.approx(6.0)
    assert cost.per_token == pytest.approx(6.0 / (4 + PRIOR_TOKENS))


def test_a_token_never_costs_less_than_nothing_or_more_than_its_share() -> None:
    cheaper = StepCost()
    dearer = StepCost()
    for num_tokens in range(1, 40):
        cheaper.add(num_tokens, 100.0 - num_tokens)
        dearer.add(num_tokens, float(num_tokens**3))
    assert cheaper.per_token == 0
    assert dearer.seconds(0) == pytest.approx(0, abs=1e-6)


def test_a_machine_that_changes_is_followed() -> None:
    cost = StepCost()
    for i in range(3000):
        cost.add(1 + i % 8, (1 + i % 8) * (1.0 if i < 2000 else 3.0))
    assert cost.per_token == pytest.approx(3.0, rel=0.05)


def test_before_the_first_step_nothing_costs() -> None:
    assert (StepCost().per_token, StepCost().seconds(9)) == (0, 0)
