from ratoon.draft.odds import FIRST_GUESS, Odds


def test_before_any_trial_the_first_guess_holds() -> None:
    assert Odds(10).rate == FIRST_GUESS
    assert Odds(10, Odds(100)).rate == FIRST_GUESS


def test_the_rate_follows_the_trials() -> None:
    odds = Odds(20)
    for i in range(1000):
        odds.add(right=i % 4 != 0)
    assert abs(odds.rate - 0.75) < 0.05


def test_old_trials_fade() -> None:
    odds = Odds(20)
    for right in [True] * 1000 + [False] * 60:
        odds.add(right=right)
    assert odds.rate < 0.1


def test_who_is_new_leans_on_the_others_and_tells_them() -> None:
    everybody = Odds(200)
    one = Odds(20, everybody)
    for _ in range(100):
        one.add(right=True)
    newcomer = Odds(20, everybody)
    assert newcomer.rate == everybody.rate > 0.95
    for _ in range(20):
        newcomer.add(right=False)
    assert newcomer.rate < 0.15 < everybody.rate
