"""Response bodies in OpenAI's shape: one format for completions, one for chat, each whole or in chunks.

A format is made per request and is told what came; it keeps no text, only what the next chunk depends on.
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


class _Format:
    kind = ""
    chunk_kind = ""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._created = int(time.time())

    def usage_chunk(self, usage: Json) -> Json:
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


class CompletionFormat(_Format):
    """`/v1/completions`."""

    kind = "text_completion"
    chunk_kind = "text_completion"

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._offsets: dict[int, int] = {}

    def opening(self, index: int) -> list[Json]:
        """Completions begin with their text."""
        return []

    def chunk(self, index: int, part: Part) -> Json:
        """Return a chunk with the new text."""
        return self._chunk(self._choice(index, part))

    def whole(self, answers: Sequence[Part], usage: Json) -> Json:
        """Return all answers."""
        choices = [self._choice(index, part) for index, part in enumerate(answers)]
        return self._body(self.kind, choices, {"usage": usage})

    def _choice(self, index: int, part: Part) -> Json:
        return {
            "index": index,
            "text": part.text,
            "logprobs": self._logprobs(index, part),
            "finish_reason": part.finish_reason,
            **self._token_ids(part),
        }

    def _logprobs(self, index: int, part: Part) -> Json | None:
        if part.logprobs is None:
            return None
        tokens = [self._text(token_id) for token_id in part.token_ids]
        offsets = []
        for token in tokens:
            offsets.append(self._offsets.setdefault(index, 0))
            self._offsets[index] += len(token)
        return {
            "tokens": tokens,
            "token_logprobs": [
                None if entry is None else _chosen(entry, token_id)
                for entry, token_id in zip(part.logprobs, part.token_ids, strict=True)
            ],
            "top_logprobs": [
                None if entry is None else {self._text(token_id): _finite(value) for token_id, value in entry}
                for entry in part.logprobs
            ],
            "text_offset": offsets,
        }

    def _text(self, token_id: int) -> str:
        return self._envelope.token_bytes(token_id).decode(errors="replace")


class ChatFormat(_Format):
    """`/v1/chat/completions`."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"

    def opening(self, index: int) -> list[Json]:
        """Return the chunk that names the role."""
        delta = {"role": "assistant", "content": ""}
        return [self._chunk({"index": index, "delta": delta, "logprobs": None, "finish_reason": None})]

    def chunk(self, index: int, part: Part) -> Json:
        """Return a chunk with the new text."""
        return self._chunk(
            {
                "index": index,
                "delta": {"content": part.text} if part.text or part.finish_reason is None else {},
                "logprobs": self._logprobs(part),
                "finish_reason": part.finish_reason,
                **self._token_ids(part),
            }
        )

    def whole(self, answers: Sequence[Part], usage: Json) -> Json:
        """Return all answers as messages."""
        choices: list[Json] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": part.text, "refusal": None},
                "logprobs": self._logprobs(part),
                "finish_reason": part.finish_reason,
                **self._token_ids(part),
            }
            for index, part in enumerate(answers)
        ]
        return self._body(self.kind, choices, {"usage": usage})

    def _logprobs(self, part: Part) -> Json | None:
        if part.logprobs is None:
            return None
        content = [
            {
                **self._token(token_id, _chosen(entry, token_id)),
                "top_logprobs": [
                    self._token(other, value) for other, value in entry[: self._envelope.num_top]
                ],
            }
            for entry, token_id in zip(part.logprobs, part.token_ids, strict=True)
            if entry is not None
        ]
        return {"content": content, "refusal": None}

    def _token(self, token_id: int, logprob: float) -> Json:
        data = self._envelope.token_bytes(token_id)
        return {"token": data.decode(errors="replace"), "logprob": _finite(logprob), "bytes": list(data)}


def usage_body(prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> Json:
    """Return OpenAI's usage object; `cached_tokens` is always there, 0 included."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def _chosen(entry: Logprobs, token_id: int) -> float:
    values: Mapping[int, float] = dict(entry)
    return _finite(values[token_id])


def _finite(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)
