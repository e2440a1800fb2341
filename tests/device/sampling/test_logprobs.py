import math

import numpy as np
import pytest

from ratoon.device.sampling.logprobs import top_logprobs
from ratoon.errors import EngineError

LOGITS = np.array([1.0, 3.0, -2.0, 3.0, 0.5, 2.0], np.float32)
EXACT = [float(x) - math.log(sum(math.exp(y) for y in LOGITS)) for x in LOGITS]


def test_they_are_logarithms_of_the_softmax() -> None:
    found = dict(top_logprobs(LOGITS, 6, 0))
    assert found == pytest.approx(dict(enumerate(EXACT)), abs=1e-6)
    assert sum(math.exp(logprob) for logprob in found.values()) == pytest.approx(1)


def test_the_best_come_first_and_the_lowest_id_among_equals() -> None:
    assert [token for token, _ in top_logprobs(LOGITS, 4, 5)] == [1, 3, 5, 0]
    assert [token for token, _ in top_logprobs(LOGITS, 1, 1)] == [1]


def test_a_token_that_is_not_among_the_best_comes_last() -> None:
    assert [token for token, _ in top_logprobs(LOGITS, 2, 2)] == [1, 3, 2]
    assert [token for token, _ in top_logprobs(LOGITS, 1, 3)] == [1, 3]


def test_zero_asks_for_the_token_alone_and_too_many_for_all() -> None:
    ((token, logprob),) = top_logprobs(LOGITS, 0, 4)
    assert token == 4
    assert logprob == pytest.approx(EXACT[4], abs=1e-6)
    assert len(top_logprobs(LOGITS, 100, 4)) == 6


def test_large_logits_neither_overflow_nor_lose_their_differences() -> None:
    found = top_logprobs(LOGITS * 1000, 6, 0)
    assert found[0][1] == pytest.approx(-math.log(2))
    assert found[-1][1] == pytest.approx(-5000 - math.log(2))


def test_rows_that_are_not_finite_are_an_engine_error() -> None:
    with pytest.raises(EngineError, match="not finite"):
        top_logprobs(np.array([1, np.nan], np.float32), 1, 0)
