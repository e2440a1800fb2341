"""`sample`: the token after one row of logits.

In this order, as vLLM has it: logit bias, bans and penalties; then either the best token (temperature 0) or
temperature, min-p, top-k, top-p and a draw. A row is treated by itself, and the draw depends on the seed and
the number of tokens generated before, so a request's choices do not depend on what runs beside it, nor on
preemption.
"""

import math

import numpy as np
from numpy.typing import NDArray

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling.best_token import best_token
from ratoon.device.sampling.penalties import adjust
from ratoon.device.sampling.randomness import uniform
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import SampleSpec

SMALLEST_TEMPERATURE = 1e-30
"""Below it a temperature might vanish in float32."""

DEEPEST = -700.0
"""Logits this far below the best are as good as forbidden: their float64 exponential is about to vanish."""

NEAR = -8.0
"""Tokens that are rarer than the best by more than exp(8) seldom matter to top-p."""

PIECE = 256
"""Probabilities that are summed at once in search of a draw's place."""


def sample(logits: Floats, spec: SampleSpec) -> int:
    """Choose a token from float32 logits [vocab], which stay as they are. Raises as `best_token` does."""
    logits = adjust(logits, spec)
    best = best_token(logits)
    if spec.params.temperature == 0:
        return best
    return _draw(logits - logits[best], spec)


def _draw(logits: Floats, spec: SampleSpec) -> int:
    """Draw from logits whose maximum is 0."""
    params = spec.params
    with np.errstate(over="ignore"):  # minus infinity, where the temperature is tiny
        logits = logits / np.float32(max(params.temperature, SMALLEST_TEMPERATURE))
    kept = logits >= _threshold(logits, params)
    weights = np.exp(logits[kept], dtype=np.float64)
    return int(np.flatnonzero(kept)[_place(weights, uniform(spec.seed, spec.num_generated))])


def _threshold(logits: Floats, params: SamplingParams) -> np.float32:
    """Return the lowest logit that min-p, top-k and top-p keep; tokens equal to it are all kept."""
    lowest = np.float32(DEEPEST)
    if params.min_p > 0:
        lowest = max(lowest, np.float32(math.log(params.min_p)))
    if 0 < params.top_k < len(logits):
        lowest = max(lowest, np.partition(logits, -params.top_k)[-params.top_k])
    if params.top_p < 1:
        lowest = _nucleus(logits[logits >= lowest], params.top_p)
    return lowest


def _nucleus(logits: Floats, top_p: float) -> np.float32:
    """Return the lowest logit of the smallest set with `top_p` of the probability (arXiv:1904.09751)."""
    needed = np.exp(logits, dtype=np.float64).sum() * top_p
    for depth in (NEAR, DEEPEST):  # sorting a whole vocabulary is dear
        descending = np.sort(logits[logits >= depth])[::-1]
        mass = np.cumsum(np.exp(descending, dtype=np.float64))
        if mass[-1] >= needed:
            break
    return np.float32(descending[min(np.searchsorted(mass, needed), len(mass) - 1)])


def _place(weights: NDArray[np.float64], fraction: float) -> int:
    """Return the first place up to which the weights sum to more than `fraction` of their total.

    Pieces are summed first, then the members of one: a running sum over a whole vocabulary is dear.
    """
    pieces = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), PIECE)))
    target = pieces[-1] * fraction
    piece = int(np.searchsorted(pieces, target, side="right"))
    members = np.cumsum(weights[piece * PIECE : (piece + 1) * PIECE])
    target -= pieces[piece - 1] if piece else 0
    place = int(np.searchsorted(members, target, side="right"))
    return piece * PIECE + min(place, len(members) - 1)  # the two sums may round differently
