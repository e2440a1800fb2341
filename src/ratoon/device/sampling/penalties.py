"""Changes to a row of logits before anything is chosen: bias, bans, and penalties for repetition."""

from collections.abc import Sequence
from itertools import count

import numpy as np

from ratoon.device.ops.protocol import Floats
from ratoon.step import SampleSpec


class TokenCounts:
    """The different tokens of one request and how often each stands in its output, kept as tokens come.

    So a penalty costs what the different tokens cost, not what all of them do.
    """

    def __init__(self) -> None:
        self.tokens = np.zeros(0, np.int64)
        self.in_output = np.zeros(0, np.int64)
        self._indexes: dict[int, int] = {}

    def add(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Take in further tokens of the prompt and of the output."""
        new = [token for token in dict.fromkeys((*prompt, *output)) if token not in self._indexes]
        if new:
            self._indexes |= zip(new, count(len(self._indexes)), strict=False)
            self.tokens = np.append(self.tokens, np.array(new, np.int64))
            self.in_output = np.append(self.in_output, np.zeros(len(new), np.int64))
        for token in output:
            self.in_output[self._indexes[token]] += 1

    def including(self, drafts: Sequence[int]) -> "TokenCounts":
        """Return what the counts would be with drafts at the end of the output; these stay as they are."""
        if not drafts:
            return self
        counts = TokenCounts()
        counts.tokens, counts.in_output = self.tokens, self.in_output.copy()
        counts._indexes = self._indexes.copy()
        counts.add((), drafts)
        return counts


def adjust(logits: Floats, spec: SampleSpec, counts: TokenCounts) -> Floats:
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
    if params.has_penalties:
        _penalise(logits, spec, counts)
    return logits


def _penalise(logits: Floats, spec: SampleSpec, counts: TokenCounts) -> None:
    """Change logits in place."""
    params = spec.params
    counts = counts.including(spec.draft_token_ids)
    if params.repetition_penalty != 1:
        penalty = np.float32(params.repetition_penalty)
        seen = logits[counts.tokens]
        logits[counts.tokens] = np.where(seen > 0, seen / penalty, seen * penalty)
    if params.presence_penalty or params.frequency_penalty:
        is_output = counts.in_output > 0
        penalties = params.presence_penalty + params.frequency_penalty * counts.in_output[is_output]
        logits[counts.tokens[is_output]] -= penalties.astype(np.float32)
