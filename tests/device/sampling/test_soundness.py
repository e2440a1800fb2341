import numpy as np
import pytest

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling.soundness import check_sound
from ratoon.errors import EngineError


def _check(logits: Floats) -> None:
    check_sound(logits, int(logits.argmax()))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 77, 99])
def test_a_row_that_is_not_finite_is_an_engine_error(wrong: float, place: int) -> None:
    logits = np.linspace(-3, 3, 100).astype(np.float32)
    _check(logits)
    logits[place] = wrong
    with pytest.raises(EngineError, match="not finite"):
        _check(logits)


def test_single_minus_infinities_are_no_error_but_nothing_else_is() -> None:
    logits = np.full(9, -np.inf, np.float32)
    with pytest.raises(EngineError, match="not finite"):
        _check(logits)
    logits[4] = -7
    _check(logits)
