"""`sample`: the token after one row of logits.

In this order, as vLLM has it: logit bias, bans and penalties; what the form of the answer allows; then either
the best token (temperature 0) or temperature, min-p, top-k, top-p and a draw.

A row is treated by itself, and the draw depends on the seed and the number of tokens generated before, so a
request's choices do not depend on what runs beside it, nor on preemption.

A draw is a race: a Gumbel number is added to each logit and the highest sum wins, which is the softmax's
distribution exactly (E. J. Gumbel, 1954). The numbers belong to the tokens, so two rows that are alike mostly
have the same winner: a draft model that races with the request's own numbers guesses nearly as well as
rejection sampling would accept (arXiv:2408.07978), and what is drawn does not depend on what was guessed.
"""

import math

import numpy as np

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling.mask import Allowed, masked
from ratoon.device.sampling.penalties import TokenCounts, adjust
from ratoon.device.sampling.randomness import bits_for, gumbel, token_bits
from ratoon.device.sampling.soundness import check_sound
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import SampleSpec

SMALLEST_TEMPERATURE = 1e-30
"""Below it a temperature might vanish in float32."""

DEEPEST = -700.0
"""Logits this far below the best are as good as forbidden: their float64 exponential is about to vanish."""

NEAR = -8.0
"""Tokens that are rarer than the best by more than exp(8) seldom matter to top-p, and seldom win a race."""


def sample(
    logits: Floats, best: int, spec: SampleSpec, counts: TokenCounts, allowed: Allowed | None = None
) -> int:
    """Choose a token from float32 logits [vocab], whose argmax is `best` and which stay as they are.

    `counts` are of the request's tokens so far, drafts aside. With `allowed`, one of these tokens; if all of
    them are banned, the ban does not hold. Raises as `check_sound` does.
    """
    adjusted = adjust(logits, spec, counts)
    if adjusted is not logits:
        best = int(adjusted.argmax())
    check_sound(adjusted, best)
    if allowed is not None:
        adjusted = masked(adjusted, allowed)
        best = int(adjusted.argmax())
        if adjusted[best] == -np.inf:
            adjusted = masked(logits, allowed)
            best = int(adjusted.argmax())
    if spec.params.temperature == 0:
        return best
    return _draw(adjusted - adjusted[best], spec)


def _draw(logits: Floats, spec: SampleSpec) -> int:
    """Draw from logits whose maximum is 0."""
    params = spec.params
    with np.errstate(over="ignore"):  # minus infinity, where the temperature is tiny
        logits = logits / np.float32(max(params.temperature, SMALLEST_TEMPERATURE))
    kept = np.flatnonzero(logits >= _threshold(logits, params))
    logits = logits[kept].astype(np.float64)
    bits = token_bits(spec.seed, spec.num_generated, kept)
    is_near = logits >= NEAR  # the best is
    leader = (logits[is_near] + gumbel(bits[is_near])).max()
    racing = np.flatnonzero(is_near | (bits >= bits_for(leader - NEAR)))  # logarithms of all would be dear
    return int(kept[racing[(logits[racing] + gumbel(bits[racing])).argmax()]])


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
