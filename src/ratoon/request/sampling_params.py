"""`SamplingParams`: how a request's tokens are chosen and when it ends. Names as vLLM users know them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from ratoon.errors import InvalidParameterError
from ratoon.request.structured_outputs import StructuredOutputs, structured_outputs


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Validated when made; raises `InvalidParameterError` naming the parameter.

    temperature 0 is greedy. top_k 0 (or -1), top_p 1 and min_p 0 are off. `seed=None` draws one when the
    request arrives. `logprobs=k` returns the k best tokens and the chosen one per output position;
    `prompt_logprobs=k` the same for prompt positions, which are then all computed afresh. `max_tokens=None`
    runs to the end of the context. `stop` may be one string; it and the token ids are kept as tuples, and
    None stands for none of them, as for no `logit_bias`. `structured_outputs` is the form that the answer
    must have, or a mapping with its fields; log-probabilities are then of the tokens that the form allows.
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
    structured_outputs: StructuredOutputs | None = None

    def __post_init__(self) -> None:
        for name, allowed in RANGES.items():
            self._set(name, allowed.checked(name, getattr(self, name)))
        for name in ("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidParameterError(f"{name} must be True or False, not {getattr(self, name)!r}.")
        if self.top_k == -1:
            self._set("top_k", 0)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameterError(
                f"min_tokens must be at most max_tokens ({self.max_tokens}), not {self.min_tokens}."
            )
        self._set("stop", _stop_strings(self.stop))
        self._set("stop_token_ids", _stop_token_ids(self.stop_token_ids))
        self._set("logit_bias", _logit_bias(self.logit_bias))
        self._set("structured_outputs", structured_outputs(self.structured_outputs))
        if self.structured_outputs is not None and self.ignore_eos:
            raise InvalidParameterError(
                "ignore_eos contradicts structured_outputs: an answer of a given form has an end."
            )

    @property
    def has_penalties(self) -> bool:
        """Whether choosing a token looks at the tokens so far."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def needs_history(self) -> bool:
        """Whether choosing a token depends on the output tokens so far."""
        return self.has_penalties or self.structured_outputs is not None

    def _set(self, name: str, value: object) -> None:
        """Write a normalised value; only while the object is being made."""
        object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers a parameter may take: from `low` (exclusive if `above`) to `high`, None where unbounded."""

    number: type[int] | type[float]
    low: float
    high: float | None = None
    above: bool = False
    optional: bool = False

    def checked(self, name: str, value: object) -> int | float | None:
        """Return the value as this range's kind of number; raise where it is none or lies outside."""
        if value is None and self.optional:
            return None
        kinds = (int,) if self.number is int else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not self._holds(value):
            raise InvalidParameterError(f"{name} must be {self}, not {value!r}.")
        return self.number(value)

    def _holds(self, value: float) -> bool:
        high = sys.float_info.max if self.high is None else self.high  # infinity and NaN fail the comparisons
        return (self.low < value if self.above else self.low <= value) and value <= high

    def __str__(self) -> str:
        noun = "a whole number" if self.number is int else "a number"
        if self.above:
            bounds = f"above {self.low}" + ("" if self.high is None else f" and at most {self.high}")
        else:
            bounds = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return f"{noun} {bounds}" + (" or None" if self.optional else "")


RANGES = {
    "max_tokens": Range(int, 1, optional=True),
    "min_tokens": Range(int, 0),
    "temperature": Range(float, 0),
    "top_p": Range(float, 0, 1, above=True),
    "top_k": Range(int, -1),
    "min_p": Range(float, 0, 1),
    "repetition_penalty": Range(float, 0.01, 100),
    "presence_penalty": Range(float, -2, 2),
    "frequency_penalty": Range(float, -2, 2),
    "seed": Range(int, -(2**63), 2**64 - 1, optional=True),
    "n": Range(int, 1, 128),
    "logprobs": Range(int, 0, optional=True),
    "prompt_logprobs": Range(int, 0, optional=True),
}
"""Every numeric parameter. The bounds are OpenAI's or vLLM's where they have some."""

BIAS = Range(float, -100, 100)
TOKEN_ID = Range(int, 0)


def _stop_strings(value: object) -> tuple[str, ...]:
    strings = (value,) if isinstance(value, str) else () if value is None else value
    if not isinstance(strings, tuple | list) or not all(isinstance(s, str) and s for s in strings):
        raise InvalidParameterError(f"stop must be a non-empty string or a list of them, not {value!r}.")
    return tuple(strings)


def _stop_token_ids(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    if not isinstance(value, tuple | list):
        raise InvalidParameterError(f"stop_token_ids must be a list of token ids, not {value!r}.")
    for token_id in value:
        TOKEN_ID.checked("Each of stop_token_ids", token_id)
    return tuple(value)


def _logit_bias(value: object) -> dict[int, float]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"logit_bias must map token ids to numbers, not {value!r}.")
    for token_id, bias in value.items():
        TOKEN_ID.checked("Each token id in logit_bias", token_id)
        BIAS.checked(f"logit_bias of token {token_id}", bias)
    return {token_id: float(bias) for token_id, bias in value.items()}
