"""`sample`: the token after one row of logits.

In this order, as vLLM has it: logit bias, bans, penalties; then either the best token (temperature 0) or
temperature, min-p, top-k, top-p and a draw. A row is treated by itself and the draw depends on the seed and
the number of tokens generated before, so a request's choices do not depend on what runs beside it, nor on
preemption.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ratoon.device.sampling.best_token import best_token
from ratoon.device.sampling.penalties import adjust
from ratoon.device.sampling.randomness import uniform
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import SampleSpec

Row = NDArray[np.float32]

SMALLEST_TEMPERATURE = 1e-30
"""Below it a temperature may vanish in float32."""


def sample(logits: Row, spec: SampleSpec) -> int:
    """Choose a token from float32 logits [vocab], which stay as they are. Raises as `best_token` does."""
    logits = adjust(logits, spec)
    best = best_token(logits)
    if spec.params.temperature == 0:
        return best
    return _draw(logits - logits[best], spec)


def _draw(logits: Row, spec: SampleSpec) -> int:
    """Draw from logits whose maximum is 0."""
    params = spec.params
    with np.errstate(over="ignore"):  # minus infinity, where the temperature is tiny
        logits = logits / np.float32(max(params.temperature, SMALLEST_TEMPERATURE))
    tokens = np.flatnonzero(logits >= _threshold(logits, params))
    mass = np.cumsum(np.exp(logits[tokens], dtype=np.float64))
    place = np.searchsorted(mass, mass[-1] * uniform(spec.seed, spec.num_generated), side="right")
    return int(tokens[place])


def _threshold(logits: Row, params: SamplingParams) -> np.float32:
    """Return the lowest logit that min-p, top-k and top-p keep; tokens equal to it are all kept."""
    lowest = np.float32(-np.inf)
    if params.min_p > 0:
        lowest = np.float32(math.log(params.min_p))
    if 0 < params.top_k < len(logits):
        lowest = max(lowest, np.partition(logits, -params.top_k)[-params.top_k])
    if params.top_p < 1:
        descending = np.sort(logits[logits >= lowest])[::-1]
        mass = np.cumsum(np.exp(descending, dtype=np.float64))
        lowest = descending[np.searchsorted(mass, mass[-1] * params.top_p)]
    return lowest
