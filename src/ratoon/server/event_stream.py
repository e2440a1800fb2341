"""Server-sent events as OpenAI's clients read them: `data: JSON`, an empty line, and `[DONE]` at the end."""

import json
from collections.abc import Mapping

from starlette.types import Send

DONE = b"data: [DONE]\n\n"


class EventStream:
    """Writes one response as events. The status line goes out with the first event, so until then an error may have its own."""

    def __init__(self, send: Send, headers: Mapping[str, str]) -> None:
        self._send = send
        self._headers = headers
        self.has_begun = False

    async def write(self, *bodies: Mapping[str, object]) -> None:
        """Send an event per body, all in one message."""
        if not self.has_begun:
            await self._begin()
        data = b"".join(_event(body) for body in bodies)
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def close(self) -> None:
        """Send the end."""
        await self._send({"type": "http.response.body", "body": DONE})

    async def _begin(self) -> None:
        self.has_begun = True
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",  # or a proxy would hold events back
            **self._headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": raw})


def _event(body: Mapping[str, object]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
