"""`choose`: the tokens of one answer that a step makes known, from the logits of its rows."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ratoon.device.ops.protocol import Floats
from ratoon.device.sampling.logprobs import top_logprobs
from ratoon.device.sampling.mask import allowed_tokens, masked
from ratoon.device.sampling.penalties import TokenCounts
from ratoon.device.sampling.sampler import sample
from ratoon.grammar.matcher import GrammarMatcher
from ratoon.step import Logprobs, SampleSpec


class Chosen(NamedTuple):
    """Tokens, their log-probabilities if asked for, and of how many drafts they were the right ones.

    Nothing but the `num_forced` among the tokens could have stood in their places.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]
    num_accepted: int
    num_forced: int


def choose(
    rows: Sequence[tuple[Floats, int]],
    drafts: tuple[int, ...],
    spec: SampleSpec,
    counts: TokenCounts,
    matcher: GrammarMatcher | None,
    observe: Callable[[int, Floats], None],
) -> Chosen:
    """Sample after the last known token and after each draft that was guessed right.

    `rows` are logits [vocab] with their argmax; `observe` is told the number of tokens before a row that is
    read, and the row. A draft is accepted if it is the very token that is sampled in its place, so drafts
    change no output: a sampled token is drawn from the same distribution, with the same random number, as
    without them. Tokens that the answer's form forces are taken as they are: no row is read for them. The
    token that ends the answer is forced only when all before it are computed, so that others find all of it.
    """
    num_best = spec.params.logprobs
    tokens: tuple[int, ...] = ()
    logprobs: list[Logprobs] = []
    num_forced = 0

    def take_forced(*, may_end: bool) -> None:
        nonlocal tokens, num_forced
        forced = () if matcher is None else matcher.take_forced(may_end=may_end)
        tokens += forced
        logprobs.extend(((token, 0.0),) for token in forced if num_best is not None)
        num_forced += len(forced)

    for place, (row, best) in enumerate(rows):
        if place != len(tokens) or tokens != drafts[:place]:
            continue  # it was forced, or follows a draft that was wrong
        take_forced(may_end=True)
        if len(tokens) > place or (matcher is not None and matcher.is_over):
            continue
        observe(place, row)
        allowed = None if matcher is None else allowed_tokens(matcher.mask(), len(row))
        token = sample(row, best, spec.after(tokens), counts, allowed)
        tokens += (token,)
        if num_best is not None:
            if allowed is not None:
                row = masked(row, allowed)
                best = int(row.argmax())
            logprobs.append(top_logprobs(row, best, num_best, token))
        if matcher is not None:
            matcher.accept((token,))
            take_forced(may_end=False)
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(tokens, drafts, strict=False))
    return Chosen(tokens, tuple(logprobs), len(list(equal)), num_forced)
