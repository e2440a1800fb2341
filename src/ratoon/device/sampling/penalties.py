"""Changes to a row of logits before anything is chosen: bias, bans, and penalties for repetition."""

import numpy as np

from ratoon.device.ops.protocol import Floats
from ratoon.step import SampleSpec


def adjust(logits: Floats, spec: SampleSpec) -> Floats:
    """Return the adjusted row [vocab]: a new one, or `logits` itself where the parameters ask for nothing.

    The repetition penalty (arXiv:1909.05858) divides positive and multiplies negative logits of every token
    in prompt or output. The presence penalty is subtracted once from each token in the output, the
    frequency penalty once per occurrence (OpenAI's definitions).
    """
    params = spec.params
    if not (params.logit_bias or spec.banned_token_ids or params.has_penalties):
        return logits
    logits = logits.copy()
    if params.logit_bias:
        logits[list(params.logit_bias)] += np.fromiter(params.logit_bias.values(), np.float32)
    logits[list(spec.banned_token_ids)] = -np.inf
    if params.repetition_penalty != 1:
        seen = np.unique(np.array(spec.prompt_token_ids + spec.output_token_ids, np.int64))
        penalty = np.float32(params.repetition_penalty)
        logits[seen] = np.where(logits[seen] > 0, logits[seen] / penalty, logits[seen] * penalty)
    if params.presence_penalty or params.frequency_penalty:
        output, counts = np.unique(np.array(spec.output_token_ids, np.int64), return_counts=True)
        penalties = params.presence_penalty + params.frequency_penalty * counts
        logits[output] -= penalties.astype(np.float32)
    return logits
