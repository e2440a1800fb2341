import numpy as np
import pytest

from ratoon.lab.statistics import (
    median,
    paired_difference,
    paired_ratio,
    percentile,
    ratio_of_medians,
    summarise,
)


def test_no_p99_from_ten_samples() -> None:
    assert percentile(range(10), 99) is None
    assert percentile(range(10), 95) is None


@pytest.mark.parametrize(("percent", "fewest"), [(95, 20), (99, 100)])
def test_a_percentile_is_given_once_a_value_is_expected_beyond_it(percent: int, fewest: int) -> None:
    assert percentile(range(fewest - 1), percent) is None
    assert percentile(range(fewest), percent) is not None


def test_percentiles_of_a_known_sample() -> None:
    summary = summarise([float(value) for value in range(1, 202)])

    assert summary is not None
    assert (summary.count, summary.median.value, summary.p95, summary.p99, summary.largest) == (
        201, 101, 191, 199, 201,
    )  # fmt: skip


def test_an_empty_sample_has_no_summary() -> None:
    assert summarise([]) is None


def test_five_values_are_too_few_for_an_interval_and_six_are_enough() -> None:
    assert median([1, 2, 3, 4, 5]).low is None
    six = median([1, 2, 3, 4, 5, 6])
    assert (six.value, six.low, six.high) == (3.5, 1, 6)


def test_the_interval_of_ten_values_lies_between_the_second_and_the_ninth() -> None:
    # Binomial(10, 1/2): fewer than 2 or more than 8 of 10 below the median has probability 0.021.
    estimate = median([float(value) for value in range(1, 11)])

    assert (estimate.low, estimate.high) == (2, 9)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        estimate = median(list(random.lognormal(size=12)))
        assert estimate.low is not None
        assert estimate.high is not None
        covered += estimate.low <= 1 <= estimate.high

    assert covered / 300 >= 0.94


def test_equal_values_have_an_interval_of_no_width() -> None:
    estimate = median([2.0] * 8)

    assert (estimate.value, estimate.low, estimate.high) == (2, 2, 2)
    assert estimate.excludes(0)
    assert not estimate.excludes(2)


def test_pairs_resolve_what_the_spread_between_them_would_hide() -> None:
    before = [1.0, 10.0, 100.0, 1_000.0, 5.0, 50.0, 500.0, 7.0]
    after = [value + 0.5 for value in before]

    difference = paired_difference(before, after)

    assert difference.value == 0.5
    assert difference.excludes(0)


def test_a_ratio_of_pairs_is_the_median_of_their_ratios() -> None:
    assert paired_ratio([1, 2, 4], [2, 4, 4]).value == 2


def test_an_estimate_without_an_interval_excludes_nothing() -> None:
    assert not median([5.0, 6.0]).excludes(0)


def test_a_ratio_of_medians_covers_the_truth_and_is_the_same_every_time() -> None:
    random = np.random.default_rng(2)
    a, b = list(random.normal(10, 1, 40)), list(random.normal(20, 1, 40))

    estimate = ratio_of_medians(a, b)

    assert estimate == ratio_of_medians(a, b)
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < 2 < estimate.high
    assert estimate.excludes(1)


def test_a_ratio_of_five_values_has_no_spread() -> None:
    assert ratio_of_medians([1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]).low is None
