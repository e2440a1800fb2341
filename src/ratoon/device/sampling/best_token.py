"""`best_token`: the highest of a row of logits, and the check that the row is sound."""

import math

from ratoon.device.ops.protocol import Floats
from ratoon.errors import EngineError


def best_token(logits: Floats) -> int:
    """Return the token with the highest of logits [vocab], the lowest id among equals.

    Raises `EngineError` where the row holds a NaN or its maximum is infinite: argmax stops at a NaN.
    """
    best = int(logits.argmax())
    if not math.isfinite(logits[best]):
        raise EngineError(
            "The model computed logits that are not finite numbers.",
            hint="The weights may be damaged.",
        )
    return best
