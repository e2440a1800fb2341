"""Writers: how outputs become the bytes of a response, as server-sent events or as one JSON body."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from starlette.responses import Response
from starlette.types import Message, Send

from ratoon.engine.output import OutputDelta, TokenLogprobs
from ratoon.server.generation.request import ResponseFormat
from ratoon.server.generation.usage import RequestUsage, ResponseUsage
from ratoon.server.http.errors import ApiError

_to_json = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode  # made once: it is used per token


def to_json(body: Mapping[str, object]) -> bytes:
    """Return a body as it is sent."""
    return _to_json(body).encode()


def event(body: Mapping[str, object], name: str | None = None) -> bytes:
    """Return a server-sent event, under a name if its dialect has names."""
    head = b"" if name is None else b"event: " + name.encode() + b"\n"
    return head + b"data: " + to_json(body) + b"\n\n"


def joined(outputs: Sequence[OutputDelta]) -> OutputDelta:
    """Return outputs of one choice, in order, as one."""
    if len(outputs) == 1:
        return outputs[0]
    logprobs: list[TokenLogprobs] | None = None
    if any(output.logprobs is not None for output in outputs):
        logprobs = [entry for output in outputs for entry in output.logprobs or ()]
    return replace(
        outputs[-1],
        text="".join(output.text for output in outputs),
        token_ids=[token_id for output in outputs for token_id in output.token_ids],
        logprobs=logprobs,
    )


class ResponseWriter(Protocol):
    """First `write`, any number of times, then `finish` or, if something has been sent, `fail`."""

    @property
    def has_begun(self) -> bool:
        """Whether something has been sent, so that an error cannot have a status of its own."""
        ...

    async def write(self, outputs: Sequence[OutputDelta], usage: RequestUsage) -> None:
        """Take what has come newly; `usage` tells what is used so far."""
        ...

    async def finish(self, usage: ResponseUsage) -> None:
        """End the response."""
        ...

    async def fail(self, error: ApiError) -> None:
        """End what has been begun with an error."""
        ...


class EventStreamWriter:
    """Server-sent events. The status line goes out with the first one."""

    def __init__(self, send: Send, headers: Mapping[str, str], form: ResponseFormat) -> None:
        self._send = send
        self._headers = headers
        self._form = form
        self._held: dict[int, OutputDelta] = {}
        self.has_begun = False

    async def write(self, outputs: Sequence[OutputDelta], usage: RequestUsage) -> None:
        """Send the events of all outputs that show something in one message.

        An output without text or log-probabilities, such as half a character, goes with the next one.
        """
        events = [] if self.has_begun else [self._form.begin(usage.so_far())]
        for output in outputs:
            if output.index in self._held:
                output = joined([self._held.pop(output.index), output])
            if output.text or output.logprobs or output.finish_reason is not None:
                events.append(self._form.output(output))
            else:
                self._held[output.index] = output
        if not self.has_begun:
            await self._begin()
        if data := b"".join(events):
            await self._send_data(data)

    async def finish(self, usage: ResponseUsage) -> None:
        """Send what the format ends with."""
        await self._send_data(self._form.end(usage), more=False)

    async def fail(self, error: ApiError) -> None:
        """Send the error as an event."""
        await self._send_data(self._form.error(error), more=False)

    async def _begin(self) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # or a proxy might hold events back
            **self._headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})

    async def _send_data(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})


class JsonWriter:
    """One JSON body, sent when every choice has ended."""

    def __init__(self, send: Send, headers: Mapping[str, str], form: ResponseFormat) -> None:
        self._send = send
        self._headers = headers
        self._form = form
        self._outputs: defaultdict[int, list[OutputDelta]] = defaultdict(list)
        self.has_begun = False

    async def write(self, outputs: Sequence[OutputDelta], usage: RequestUsage) -> None:
        """Keep the outputs."""
        for output in outputs:
            self._outputs[output.index].append(output)

    async def finish(self, usage: ResponseUsage) -> None:
        """Send the body."""
        choices = [joined(outputs) for _, outputs in sorted(self._outputs.items())]
        data = to_json(self._form.whole(choices, usage))
        response = Response(data, headers=dict(self._headers), media_type="application/json")
        self.has_begun = True
        await response({"type": "http"}, _receive_nothing, self._send)

    async def fail(self, error: ApiError) -> None:
        """Do nothing: the body is sent in one piece, and if sending failed the client is gone."""


async def _receive_nothing() -> Message:
    raise AssertionError("a response with a body does not read")
