"""What responses of completions and chat completions have in common: envelope, usage, chunks."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ratoon.engine.output import OutputDelta
from ratoon.server.generation.request import Json
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.generation.writers import event
from ratoon.server.http.errors import ApiError

DONE = b"data: [DONE]\n\n"

LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON has not."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """What all bodies of one response share.

    With `stream_usage` every chunk carries a `usage`, null until the last one. `num_top` is how many
    alternatives per token a chat asked for. `token_bytes` returns the bytes that a token stands for.
    """

    response_id: str
    model: str
    fingerprint: str
    token_bytes: Callable[[int], bytes]
    stream_usage: bool = False
    num_top: int = 0
    show_token_ids: bool = False


class OpenAIFormat:
    """The part of a `ResponseFormat` that both endpoints share; `chunk_choices` is each one's own."""

    kind = ""
    chunk_kind = ""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._created = int(time.time())

    def begin(self, usage: ResponseUsage) -> bytes:
        """Send nothing: the first chunk begins a stream."""
        return b""

    def output(self, output: OutputDelta) -> bytes:
        """Return an event for each chunk."""
        rest: Json = {"usage": None} if self._envelope.stream_usage else {}
        chunks = self.chunk_choices(output)
        return b"".join(event(self._body(self.chunk_kind, [choice], rest)) for choice in chunks)

    def end(self, usage: ResponseUsage) -> bytes:
        """Return the usage, if it was asked for, and the end."""
        if not self._envelope.stream_usage:
            return DONE
        return event(self._body(self.chunk_kind, [], {"usage": usage_body(usage)})) + DONE

    def error(self, error: ApiError) -> bytes:
        """Return the error and the end."""
        return event(error.body()) + DONE

    def chunk_choices(self, output: OutputDelta) -> list[Json]:
        """Return the choice of each chunk for an output."""
        raise NotImplementedError

    def whole(self, outputs: Sequence[OutputDelta], usage: ResponseUsage) -> Json:
        """Return the body of a response that is not a stream."""
        raise NotImplementedError

    def _token_ids(self, output: OutputDelta) -> Json:
        return {"token_ids": output.token_ids} if self._envelope.show_token_ids else {}

    def _body(self, kind: str, choices: list[Json], rest: Json) -> Json:
        return {
            "id": self._envelope.response_id,
            "object": kind,
            "created": self._created,
            "model": self._envelope.model,
            "system_fingerprint": self._envelope.fingerprint,
            "choices": choices,
            **rest,
        }


def usage_body(usage: ResponseUsage) -> Json:
    """Return OpenAI's usage object; `cached_tokens` is always there, 0 included."""
    body: Json = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.report is None:
        return body
    report = asdict(usage.report)
    if report["explain"] is None:
        del report["explain"]
    return body | {"ratoon": report}


def finite_logprob(logprob: float) -> float:
    """Return the value, or the number that stands for minus infinity."""
    return max(logprob, LEAST_LOGPROB)
