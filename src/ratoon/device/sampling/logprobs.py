"""Log-probabilities as they are reported.

They are of the model's own distribution: natural logarithms of the softmax of the logits as computed,
before bias, penalties, temperature and filters (what vLLM calls raw logprobs). Where an answer has a form to
keep to, they are of the tokens that it allows, as OpenAI gives them.
"""

import math

import numpy as np

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling.soundness import check_sound
from ratoon.step import Logprobs


def top_logprobs(logits: Floats, best: int, num_best: int, token_id: int) -> Logprobs:
    """Return the `num_best` best tokens of logits [vocab], lowest id first among equals, and `token_id`.

    `best` is the logits' argmax. Raises as `check_sound` does.
    """
    check_sound(logits, best)
    top = logits[best]
    log_sum = float(top) + math.log(np.exp(logits - top).sum(dtype=np.float64))
    tokens = _best(logits, min(num_best, len(logits)))
    if token_id not in tokens:
        tokens.append(token_id)
    return tuple((token, float(logits[token]) - log_sum) for token in tokens)


def _best(logits: Floats, count: int) -> list[int]:
    if count == 0:
        return []
    lowest = np.partition(logits, -count)[-count]
    candidates = np.flatnonzero(logits >= lowest if lowest > -np.inf else logits > lowest)
    order = np.argsort(-logits[candidates], kind="stable")
    return [int(token) for token in candidates[order[:count]]]
