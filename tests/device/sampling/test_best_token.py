import numpy as np
import pytest

from ratoon.device.sampling.best_token import best_token
from ratoon.errors import EngineError


def test_the_lowest_id_wins_among_equals() -> None:
    logits = np.zeros(1000, np.float32)
    logits[[700, 300, 999]] = 2.5
    assert best_token(logits) == 300


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 77, 99])
def test_a_row_that_is_not_finite_is_an_engine_error(wrong: float, place: int) -> None:
    logits = np.linspace(-3, 3, 100).astype(np.float32)
    logits[place] = wrong
    with pytest.raises(EngineError, match="not finite"):
        best_token(logits)


def test_single_minus_infinities_are_no_error_but_nothing_else_is() -> None:
    logits = np.full(9, -np.inf, np.float32)
    with pytest.raises(EngineError, match="not finite"):
        best_token(logits)
    logits[4] = -7
    assert best_token(logits) == 4
