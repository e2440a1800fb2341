"""`AnswerFormat`: how answers are written in OpenAI's shape, whole or in chunks.

There is one format for completions and one for chat. A format is made per request and is told what came; it
keeps no text, only what the next chunk depends on.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ratoon.step import Logprobs

Json = dict[str, object]
TokenBytes = Callable[[int], bytes]
"""The bytes that a token stands for, perhaps half a character."""

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON has not."""


@dataclass(frozen=True, slots=True)
class Part:
    """Newly made output of one answer.

    `logprobs` has an entry per token if asked for, None where there is none.
    """

    text: str
    token_ids: Sequence[int] = ()
    logprobs: Sequence[Logprobs | None] | None = None
    finish_reason: str | None = None


def joined(parts: Sequence[Part]) -> Part:
    """Return parts of one answer, in order, as one."""
    logprobs: list[Logprobs | None] | None = None
    if any(part.logprobs is not None for part in parts):
        logprobs = [entry for part in parts for entry in part.logprobs or ()]
    return Part(
        text="".join(part.text for part in parts),
        token_ids=[token_id for part in parts for token_id in part.token_ids],
        logprobs=logprobs,
        finish_reason=parts[-1].finish_reason,
    )


class AnswerFormat(Protocol):
    """How one request's answers are written."""

    def opening(self, index: int) -> list[Json]:
        """Return the chunk that comes before answer `index`, if there is one."""
        ...

    def chunk(self, index: int, part: Part) -> Json:
        """Return the next chunk of answer `index`."""
        ...

    def usage_chunk(self, usage: Json) -> Json:
        """Return the last chunk of a stream that reports usage."""
        ...

    def whole(self, answers: Sequence[Part], usage: Json) -> Json:
        """Return the body of a response that is no stream."""
        ...


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all bodies of one response share.

    With `stream_usage` every chunk carries a `usage`, null until the last one. `num_top` is how many
    alternatives per token a chat asked for.
    """

    answer_id: str
    model: str
    fingerprint: str
    token_bytes: TokenBytes
    stream_usage: bool = False
    num_top: int = 0
    shows_token_ids: bool = False


class EnvelopedFormat:
    """The part that both formats share."""

    kind = ""
    chunk_kind = ""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._created = int(time.time())

    def usage_chunk(self, usage: Json) -> Json:
        """Return the last chunk of a stream that reports usage."""
        return self._body(self.chunk_kind, [], {"usage": usage})

    def _chunk(self, choice: Json) -> Json:
        return self._body(self.chunk_kind, [choice], {"usage": None} if self._envelope.stream_usage else {})

    def _token_ids(self, part: Part) -> Json:
        return {"token_ids": list(part.token_ids)} if self._envelope.shows_token_ids else {}

    def _body(self, kind: str, choices: list[Json], rest: Json) -> Json:
        return {
            "id": self._envelope.answer_id,
            "object": kind,
            "created": self._created,
            "model": self._envelope.model,
            "system_fingerprint": self._envelope.fingerprint,
            "choices": choices,
            **rest,
        }


def usage_body(prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> Json:
    """Return OpenAI's usage object; `cached_tokens` is always there, 0 included."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def chosen_logprob(entry: Logprobs, token_id: int) -> float:
    """Return the log-probability of the chosen token."""
    values: Mapping[int, float] = dict(entry)
    return finite_logprob(values[token_id])


def finite_logprob(logprob: float) -> float:
    """Return the value, or the number that stands for minus infinity."""
    return max(logprob, LEAST_LOGPROB)
