"""`check_sound`: whether anything can be chosen from a row of logits."""

import math

from ratoon.device.ops.protocol import Floats
from ratoon.errors import EngineError


def check_sound(logits: Floats, best: int) -> None:
    """Raise `EngineError` where logits [vocab], whose argmax is `best`, hold a NaN or no finite maximum.

    The argmax of a row that holds a NaN is a NaN.
    """
    if not math.isfinite(logits[best]):
        raise EngineError(
            "The model computed logits that are not finite numbers.",
            hint="The weights may be damaged.",
        )
