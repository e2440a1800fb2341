"""Statistics of latencies: few samples, skewed, with outliers.

Everything rests on order statistics. A median and its interval need no assumption about the distribution,
survive outliers, and mean the same on a log scale, so the interval of a ratio is as honest as that of a
difference. What a sample is too small to say is `None`, never a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
"""Of every interval in a report."""

RESAMPLES = 9_999
"""Bootstrap resamples behind the spread of a ratio of two runs."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % confidence interval, which is None where the sample is too small for one."""

    value: float
    low: float | None
    high: float | None
    count: int

    def excludes(self, value: float) -> bool:
        """Whether the interval exists and does not hold `value`: the data resolve a difference from it."""
        return self.low is not None and self.high is not None and not self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Summary:
    """Median and tail of one sample.

    A percentile is None where fewer than one value is expected beyond it.
    """

    count: int
    median: Estimate
    p95: float | None
    p99: float | None
    largest: float


def summarise(values: Sequence[float]) -> Summary | None:
    """Return the summary of a sample, None of an empty one."""
    if not values:
        return None
    return Summary(len(values), median(values), percentile(values, 95), percentile(values, 99), max(values))


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return a percentile, None where the sample has fewer than 100 / (100 - percent) values.

    With fewer, a percentile is no more than the largest value under another name: P95 takes 20 values, P99
    takes 100.
    """
    if len(values) * (100 - percent) < 100:
        return None
    return float(np.percentile(values, percent))


def median(values: Sequence[float]) -> Estimate:
    """Return the median and its exact interval between order statistics; it takes 6 values to have one."""
    sample = np.asarray(values, dtype=float)
    middle = float(np.median(sample))
    interval = stats.quantile_test(sample, q=middle, p=0.5).confidence_interval(CONFIDENCE)
    low, high = float(interval.low), float(interval.high)
    if np.isnan(low) or np.isnan(high):
        return Estimate(middle, None, None, len(sample))
    return Estimate(middle, low, high, len(sample))


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the median of `after - before` over pairs, with its interval."""
    return median([b - a for a, b in zip(before, after, strict=True)])


def paired_ratio(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the median of `after / before` over pairs, with its interval."""
    return median([b / a for a, b in zip(before, after, strict=True)])


def ratio_of_medians(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return median(after) / median(before) of two unpaired samples of positive values.

    The interval is the percentile bootstrap's, resampling both sides, with a fixed seed; None where either
    side has fewer than 6 values.
    """
    value = float(np.median(after) / np.median(before))
    count = min(len(before), len(after))
    if count < 6:
        return Estimate(value, None, None, count)
    random = np.random.default_rng(0)
    resampled = [
        np.median(random.choice(np.asarray(side, dtype=float), (RESAMPLES, len(side))), axis=1)
        for side in (before, after)
    ]
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(resampled[1] / resampled[0], [tail, 100 - tail])
    return Estimate(value, float(low), float(high), count)
