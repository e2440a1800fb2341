"""`RequestDelta`: what one step changed for one request, as its reader sees it."""

from typing import NamedTuple

from ratoon.errors import RatoonError
from ratoon.request.finish import FinishReason, Timings, Usage
from ratoon.step import Logprobs


class RequestDelta(NamedTuple):
    """New tokens of a request, its end, or both.

    `token_ids` are the new output tokens, a stop token included. `logprobs` has one entry per new token if
    asked for. `prompt_logprobs` comes with the first token if asked for: one entry per prompt position, None
    for the first and where input rows stand. The last delta of a request, and only that, has a
    `finish_reason` and `timings`, and an `error` after a failed step, or where the answer's grammar could not
    be followed. `usage` comes with the first token, when it is known what of the prompt was cached, and with
    the last delta.
    """

    request_id: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[Logprobs, ...] = ()
    prompt_logprobs: tuple[Logprobs | None, ...] = ()
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    error: RatoonError | None = None
