"""`Client`: talks to an OpenAI-compatible server and notes when what arrived.

One connection per request, opened before the clock starts. Reading blocks, so concurrent requests take one
thread each; a thread that waits for a socket costs the server's cores nothing.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from ratoon.errors import LabError
from ratoon.lab.answer import Answer

TIMEOUT_S = 900.0
"""Longest silence before a request counts as failed; a cold prefill can be silent for minutes."""

DONE = "[DONE]"


class Client:
    """Requests to one server, from any thread. `model` may be filled in once it is known."""

    def __init__(self, url: str, model: str = "", api_key: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LabError(f"{url!r} is not a server's address.", hint="Write it like http://127.0.0.1:8000.")
        self.url = url.rstrip("/").removesuffix("/v1")
        self.model = model
        self._api_key = api_key
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._root = urlsplit(self.url).path

    def complete(
        self, prompt: Sequence[int], max_tokens: int, *, salt: str | None = None, api_key: str | None = None
    ) -> Answer:
        """Have a prompt continued, greedily and to the full length, and return what was seen.

        Whatever goes wrong is noted in the answer: in an experiment a failed request is a result.
        """
        body: dict[str, object] = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
        }
        if salt is not None:
            body["cache_salt"] = salt
        payload = json.dumps(body).encode()
        seen = _Seen()
        sent_at = time.perf_counter()
        try:
            with closing(self._connect()) as connection:
                sent_at = time.perf_counter()
                connection.request("POST", f"{self._root}/v1/completions", payload, self._headers(api_key))
                response = connection.getresponse()
                if response.status != 200:
                    raise _RefusalError(_refusal(response))
                for event in _events(response):
                    seen.note(event, time.perf_counter() - sent_at)
                seen.check(max_tokens)
        except (OSError, HTTPException, ValueError, _RefusalError) as error:
            seen.error = str(error) or type(error).__name__
        return seen.answer(sent_at)

    def text(self, path: str) -> str:
        """GET a page. Raises `LabError` where the server is away or refuses."""
        return self._exchange("GET", path, None)

    def json(self, path: str, body: object = None) -> Any:
        """GET, or POST a body, and return the JSON that comes back. Raises `LabError` like `text`."""
        answer = self._exchange("GET" if body is None else "POST", path, body)
        try:
            return json.loads(answer)
        except ValueError as error:
            raise LabError(f"{self.url}{path} answered with something other than JSON.") from error

    def _exchange(self, method: str, path: str, body: object) -> str:
        try:
            with closing(self._connect()) as connection:
                payload = None if body is None else json.dumps(body)
                connection.request(method, self._root + path, payload, self._headers(None))
                response = connection.getresponse()
                if response.status != 200:
                    raise LabError(f"{self.url}{path} answered {_refusal(response)}.")
                return response.read().decode("utf-8", "replace")
        except (OSError, HTTPException) as error:
            raise LabError(f"No answer from {self.url}{path}: {error}.") from error

    def _connect(self) -> HTTPConnection:
        kind = HTTPSConnection if self._secure else HTTPConnection
        connection = kind(self._host, self._port, timeout=TIMEOUT_S)
        connection.connect()
        return connection

    def _headers(self, api_key: str | None) -> Mapping[str, str]:
        headers = {"Content-Type": "application/json"}
        if key := api_key or self._api_key:
            headers["Authorization"] = f"Bearer {key}"
        return headers


class _RefusalError(Exception):
    """The server said no."""


@dataclass(slots=True)
class _Seen:
    """What has arrived of one stream."""

    arrivals_s: list[float] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    output_ids: list[int] | None = None
    usage: dict[str, Any] | None = None
    end_s: float | None = None
    error: str | None = None

    def note(self, event: str, at_s: float) -> None:
        """Take in one event. Raises `_RefusalError` for an error that the server sends in its stream."""
        if event == DONE:
            self.end_s = at_s
            return
        content = json.loads(event)
        if "error" in content:
            raise _RefusalError(f"the stream broke off: {content['error']}")
        self.usage = content.get("usage") or self.usage
        for choice in content.get("choices", ()):
            text, ids = choice.get("text") or "", choice.get("token_ids") or ()
            if not text and not ids and choice.get("finish_reason") is not None:
                continue  # the end and nothing else; an empty text before is half a character
            self.arrivals_s.append(at_s)
            self.text.append(text)
            if ids:
                self.output_ids = [*(self.output_ids or ()), *ids]

    def check(self, max_tokens: int) -> None:
        """Raise `_RefusalError` where the answer is not whole."""
        if self.end_s is None:
            raise _RefusalError("the stream ended early")
        if self.usage is None:
            raise _RefusalError("the stream told no usage")
        if not self.arrivals_s:
            raise _RefusalError("the answer is empty")
        if self.usage["completion_tokens"] != max_tokens:
            raise _RefusalError(f"{self.usage['completion_tokens']} tokens came, {max_tokens} were asked for")

    def answer(self, sent_at: float) -> Answer:
        """Return it all."""
        usage = self.usage or {}
        details = usage.get("prompt_tokens_details") or {}
        return Answer(
            sent_at_s=sent_at,
            arrivals_s=tuple(self.arrivals_s),
            end_s=self.end_s or 0.0,
            prompt_tokens=usage.get("prompt_tokens", 0),
            completion_tokens=usage.get("completion_tokens", 0),
            cached_tokens=details.get("cached_tokens"),
            output_ids=None if self.output_ids is None else tuple(self.output_ids),
            text_digest=hashlib.sha256("".join(self.text).encode()).hexdigest()[:16],
            error=self.error,
        )


def _events(response: HTTPResponse) -> Iterator[str]:
    """Yield the data of each server-sent event as soon as it is there."""
    pending = b""
    while piece := response.read1(65_536):
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip().decode()


def _refusal(response: HTTPResponse) -> str:
    """Return status and message of an answer that is not 200."""
    text = response.read(65_536).decode("utf-8", "replace").strip()
    try:
        content = json.loads(text)
        text = content["error"]["message"]
    except (ValueError, KeyError, TypeError):
        pass
    return f"HTTP {response.status}: {text[:300]}"
