"""Writers: how parts of answers become the bytes of a response, as server-sent events or as one JSON body."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Send

from ratoon.server.answer_format import AnswerFormat, Json, Part, joined
from ratoon.server.api_error import ApiError

DONE = b"data: [DONE]\n\n"

_to_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode  # made once: it is used per token


class Writer(Protocol):
    """First `write`, any number of times, then `finish` or, if something has been sent, `fail`."""

    @property
    def has_begun(self) -> bool:
        """Whether something has been sent, so that an error cannot have a status of its own."""
        ...

    async def write(self, parts: Sequence[tuple[int, Part]]) -> None:
        """Take what has come for which answer."""
        ...

    async def finish(self, usage: Json) -> None:
        """End the response."""
        ...

    async def fail(self, error: ApiError) -> None:
        """End what has been begun with an error."""
        ...


class StreamWriter:
    """Server-sent events as OpenAI's clients read them: `data: JSON` and an empty line each, then `[DONE]`.

    The status line goes out with the first event.
    """

    def __init__(
        self, send: Send, headers: Mapping[str, str], form: AnswerFormat, *, sends_usage: bool
    ) -> None:
        self._send = send
        self._headers = headers
        self._form = form
        self._sends_usage = sends_usage
        self._opened: set[int] = set()
        self._held: dict[int, Part] = {}

    @property
    def has_begun(self) -> bool:
        """Whether the status line was sent."""
        return bool(self._opened)

    async def write(self, parts: Sequence[tuple[int, Part]]) -> None:
        """Send an event for each part that shows something, all in one message.

        A part without text or log-probabilities, such as half a character, goes with the next one.
        """
        bodies = []
        for index, part in parts:
            if index not in self._opened:
                if not self._opened:
                    await self._begin()
                self._opened.add(index)
                bodies += self._form.opening(index)
            if index in self._held:
                part = joined([self._held.pop(index), part])
            if part.text or part.logprobs or part.finish_reason is not None:
                bodies.append(self._form.chunk(index, part))
            else:
                self._held[index] = part
        if bodies:
            await self._send_data(b"".join(map(_event, bodies)))

    async def finish(self, usage: Json) -> None:
        """Send usage if asked for, and the end."""
        last = _event(self._form.usage_chunk(usage)) if self._sends_usage else b""
        await self._send_data(last + DONE, more=False)

    async def fail(self, error: ApiError) -> None:
        """Send the error as an event."""
        await self._send_data(_event(error.body()) + DONE, more=False)

    async def _begin(self) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # or a proxy might hold events back
            **self._headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _send_data(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class WholeWriter:
    """One JSON body, sent when every answer has ended."""

    def __init__(
        self, send: Send, headers: Mapping[str, str], form: AnswerFormat, *, num_answers: int
    ) -> None:
        self._send = send
        self._headers = headers
        self._form = form
        self._parts: list[list[Part]] = [[] for _ in range(num_answers)]
        self.has_begun = False

    async def write(self, parts: Sequence[tuple[int, Part]]) -> None:
        """Keep the parts."""
        for index, part in parts:
            self._parts[index].append(part)

    async def finish(self, usage: Json) -> None:
        """Send the body."""
        data = _json(self._form.whole([joined(parts) for parts in self._parts], usage))
        response = Response(data, headers=dict(self._headers), media_type="application/json")
        self.has_begun = True
        await response({"type": "http"}, _receive_nothing, self._send)

    async def fail(self, error: ApiError) -> None:
        """Do nothing: a body is sent in one piece, and if that broke nobody is there."""


async def _receive_nothing() -> Message:
    raise AssertionError("a response with a body does not read")


def _json(body: Mapping[str, object]) -> bytes:
    return _to_json(body).encode()


def _event(body: Mapping[str, object]) -> bytes:
    return b"data: " + _json(body) + b"\n\n"
