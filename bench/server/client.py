"""A small asynchronous HTTP client on bare sockets: nothing between the measurement and the wire."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any


@dataclass
class Response:
    """A response whose head was read."""

    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body in the pieces it came in."""
        if "content-length" in self.headers:
            yield await self.reader.readexactly(int(self.headers["content-length"]))
            return
        while size := int(await self.reader.readline(), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    async def body(self) -> bytes:
        """Return the whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """Yield the JSON of server-sent events up to [DONE]."""
        data = b""
        async for chunk in self.chunks():
            data += chunk
            *events, data = data.split(b"\n\n")
            for event in events:
                if event != b"data: [DONE]":
                    yield json.loads(event.removeprefix(b"data: "))


@dataclass(frozen=True)
class Client:
    """Makes one connection per request."""

    port: int
    key: str | None = None

    @asynccontextmanager
    async def request(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None
    ) -> AsyncIterator[Response]:
        """Send a request; the connection is dropped when the context ends."""
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: ratoon\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(data)}\r\nConnection: close\r\n"
        if self.key is not None:
            head += f"Authorization: Bearer {self.key}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(head.encode() + b"\r\n" + data)
            await writer.drain()
            status = int((await reader.readline()).split()[1])
            headers = {}
            while line := (await reader.readline()).strip().decode("latin-1"):
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            yield Response(status, headers, reader)
        finally:
            writer.close()

    async def json(self, method: str, path: str, body: object = None) -> Any:
        """Return the JSON of a response that must succeed."""
        async with self.request(method, path, body) as response:
            data = await response.body()
        assert response.status == 200, data
        return json.loads(data)

    async def metrics(self) -> dict[str, float]:
        """Return the samples of a scrape by name and labels."""
        async with self.request("GET", "/metrics") as response:
            lines = (await response.body()).decode().splitlines()
        return {
            name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        }
