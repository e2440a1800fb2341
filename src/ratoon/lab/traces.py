"""Traces: recorded traffic as a list of requests, from three formats, told apart by their first line.

Mooncake (JSONL, FAST'25): `timestamp` in ms, `input_length` and `output_length` in tokens, `hash_ids`: one id
per block of 512 tokens; equal ids stand for equal content *and* an equal prefix. The text is not in the
trace, so prompts are made up: a block's tokens are a function of its id, and equal ids become equal tokens.

Chat transcripts (JSONL): a list of OpenAI messages per line, bare or under `messages`, perhaps with a
`timestamp` in seconds. Every assistant message was once an answer: it becomes a request for what stood before
it.

Agent calls (JSONL): `input` is the full prompt text, `output` the answer, `session_id` and `timestamp` (µs)
as recorded.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratoon.errors import UsageError
from ratoon.lab.token_source import TokenSource

BLOCK_TOKENS = 512
"""Tokens per hash id in a Mooncake trace."""

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class HashedPrompt:
    """A prompt of which only the hashes of its blocks are known."""

    num_tokens: int
    hash_ids: tuple[int, ...]

    def tokens(self, source: TokenSource, length_scale: float) -> list[int]:
        """Make up the prompt with every block and the whole scaled alike; at least one token long."""
        block_tokens = max(1, round(BLOCK_TOKENS * length_scale))
        ids = [token for hash_id in self.hash_ids for token in source.tokens(f"hash/{hash_id}", block_tokens)]
        return ids[: max(1, round(self.num_tokens * length_scale))]


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One recorded request."""

    session: str
    """Requests of one session follow one another."""
    at_s: float | None
    """When it came, since the trace began; None where the trace does not tell."""
    prompt: HashedPrompt | Messages | str
    output: int | str
    """Length of the answer in tokens, or its text, whose length the tokenizer tells."""


def read_trace(path: Path, most: int) -> list[TraceRequest]:
    """Return up to `most` requests in order. Raises `UsageError` naming the line that cannot be read."""
    requests: list[TraceRequest] = []
    for number, record in _records(path):
        try:
            requests += _reader(record)(record, number)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UsageError(
                f"{path}, line {number} is neither a Mooncake record, nor chat messages, nor an agent's "
                "call.",
                hint="docs/experiments.md shows the three formats.",
            ) from error
        if len(requests) >= most:
            break
    if not requests:
        raise UsageError(f"{path} holds no request.")
    return _from_zero(requests[:most])


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, json.loads(line)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON lines: {error}.") from error


def _reader(record: Any) -> Callable[[Any, int], list[TraceRequest]]:
    if isinstance(record, list) or "messages" in record:
        return _transcript
    return _mooncake if "hash_ids" in record else _agent_call


def _mooncake(record: dict[str, Any], number: int) -> list[TraceRequest]:
    length, hash_ids = int(record["input_length"]), tuple(map(int, record["hash_ids"]))
    if len(hash_ids) != -(-length // BLOCK_TOKENS):
        raise ValueError("one hash id per block")
    prompt = HashedPrompt(length, hash_ids)
    return [TraceRequest(str(number), record["timestamp"] / 1e3, prompt, int(record["output_length"]))]


def _transcript(record: Any, number: int) -> list[TraceRequest]:
    messages: Messages = record if isinstance(record, list) else record["messages"]
    at_s = None if isinstance(record, list) else record.get("timestamp")
    requests = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant" and index > 0:
            reply = message["content"] or ""
            if not isinstance(reply, str):
                raise TypeError("an answer that is no text")
            requests.append(TraceRequest(str(number), at_s, messages[:index], reply))
    if not requests:
        raise ValueError("no answer in it")
    return requests


def _agent_call(record: dict[str, Any], number: int) -> list[TraceRequest]:
    session = str(record.get("session_id", number))
    return [TraceRequest(session, record["timestamp"] / 1e6, str(record["input"]), str(record["output"]))]


def _from_zero(requests: list[TraceRequest]) -> list[TraceRequest]:
    """Count times from the first request's."""
    start = min((request.at_s for request in requests if request.at_s is not None), default=0.0)
    return [
        TraceRequest(
            request.session,
            None if request.at_s is None else request.at_s - start,
            request.prompt,
            request.output,
        )
        for request in requests
    ]
