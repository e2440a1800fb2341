"""What callers of the library get back. Names as vLLM users know them."""

from dataclasses import dataclass

from ratoon.request.finish import Usage

TokenLogprobs = dict[int, float]
"""Token id to natural-log probability, best first; the chosen or actual token is always in it."""


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One answer.

    `token_ids` holds all output tokens, the one that ended the answer included; `text` leaves out stop
    tokens and stop strings. `finish_reason` is `stop`, `length` or `cancelled`; with `stop`, `stop_reason`
    is the stop string or stop token of the request that ended the answer, or None where the model ended it.
    """

    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None
    finish_reason: str | None
    stop_reason: str | int | None


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """All answers to one prompt.

    `prompt` is None where token ids were given. `usage` counts the prompt once, as the first answer found
    it, and the output tokens of all answers. `ttft_s` is the time from arrival to the first token of any
    answer (None where there was none), `e2e_s` to the last token of all.
    """

    request_id: int
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs | None] | None
    outputs: list[CompletionOutput]
    usage: Usage
    ttft_s: float | None
    e2e_s: float


@dataclass(frozen=True, slots=True)
class OutputDelta:
    """What came newly for answer `index`; its last one has a `finish_reason`.

    `text` may be empty while a character or a possible stop string is incomplete. The last delta of the
    whole request carries its `result`.
    """

    request_id: int
    index: int
    text: str
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None
    result: RequestOutput | None = None
