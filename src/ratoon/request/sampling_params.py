"""`SamplingParams`: how a request's tokens are chosen and when it ends. Names as vLLM users know them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ratoon.errors import InvalidParameterError


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Validated when made; raises `InvalidParameterError` naming the parameter.

    temperature 0 is greedy. top_k 0 (or -1), top_p 1 and min_p 0 are off. `seed=None` draws one when the request arrives.
    `logprobs=k` returns the k best tokens and the chosen one per output position; `prompt_logprobs=k` the same
    for prompt positions, which are then all computed afresh. `max_tokens=None` runs to the end of the context.
    """

    max_tokens: int | None = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
