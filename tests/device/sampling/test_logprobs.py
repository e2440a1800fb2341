import math

import numpy as np
import pytest

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling import logprobs
from ratoon.errors import EngineError
from ratoon.step import Logprobs

LOGITS = np.array([1.0, 3.0, -2.0, 3.0, 0.5, 2.0], np.float32)
EXACT = [float(x) - math.log(sum(math.exp(y) for y in LOGITS)) for x in LOGITS]


def _top(logits: Floats, num_best: int, token_id: int) -> Logprobs:
    return logprobs.top_logprobs(logits, int(logits.argmax()), num_best, token_id)


def test_they_are_logarithms_of_the_softmax() -> None:
    found = dict(_top(LOGITS, 6, 0))
    assert found == pytest.approx(dict(enumerate(EXACT)), abs=1e-6)
    assert sum(math.exp(logprob) for logprob in found.values()) == pytest.approx(1)


def test_the_best_come_first_and_the_lowest_id_among_equals() -> None:
    assert [token for token, _ in _top(LOGITS, 4, 5)] == [1, 3, 5, 0]
    assert [token for token, _ in _top(LOGITS, 1, 1)] == [1]


def test_a_token_that_is_not_among_the_best_comes_last() -> None:
    assert [token for token, _ in _top(LOGITS, 2, 2)] == [1, 3, 2]
    assert [token for token, _ in _top(LOGITS, 1, 3)] == [1, 3]


def test_zero_asks_for_the_token_alone_and_too_many_for_all() -> None:
    ((token, logprob),) = _top(LOGITS, 0, 4)
    assert token == 4
    assert logprob == pytest.approx(EXACT[4], abs=1e-6)
    assert len(_top(LOGITS, 100, 4)) == 6


def test_large_logits_neither_overflow_nor_lose_their_differences() -> None:
    found = _top(LOGITS * 1000, 6, 0)
    assert found[0][1] == pytest.approx(-math.log(2))
    assert found[-1][1] == pytest.approx(-5000 - math.log(2))


def test_rows_that_are_not_finite_are_an_engine_error() -> None:
    with pytest.raises(EngineError, match="not finite"):
        _top(np.array([1, np.nan], np.float32), 1, 0)
