"""What is remembered of a finished request: its record, and one line of the log.

The log is for people or JSON. Keys never come here, prompts only if the operator asked for them.
"""

import json
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TextIO


class Outcome(StrEnum):
    """How a request ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"  # the client went away
    DEADLINE = "deadline"  # it took longer than it may, or than a stopping server waits
    FAILED = "failed"  # a step failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """Token counts are those of the response's `usage`; times are in seconds on the server's clock.

    `ttft_s` and `queue_s` are None where no token came, or the request was never scheduled.
    """

    request_id: str
    tenant: str
    endpoint: str
    outcome: Outcome
    num_answers: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    queue_s: float | None
    ttft_s: float | None
    e2e_s: float
    prompt: str | None = None
    """The prompt's text, only where the server was told to log prompts."""

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per output token after the first; of all answers together where there are several."""
        later_tokens = self.output_tokens - self.num_answers
        if self.ttft_s is None or later_tokens <= 0:
            return None
        return (self.e2e_s - self.ttft_s) * self.num_answers / later_tokens


class RequestLog:
    """Writes records to a stream as they come."""

    def __init__(self, stream: TextIO, *, as_json: bool = False) -> None:
        self._stream = stream
        self._as_json = as_json

    def write(self, record: RequestRecord) -> None:
        """Write one line."""
        line = _json_line(record) if self._as_json else _text_line(record)
        print(line, file=self._stream, flush=True)


def _json_line(record: RequestRecord) -> str:
    entries = {name: value for name, value in asdict(record).items() if name != "prompt" or value is not None}
    entries = {
        name: round(value, 6) if isinstance(value, float) else value for name, value in entries.items()
    }
    return json.dumps({"time": round(time.time(), 3), **entries})


def _text_line(record: RequestRecord) -> str:
    line = (
        f"{time.strftime('%H:%M:%S')} {record.request_id} {record.tenant} {record.endpoint}"
        f" prompt={record.prompt_tokens} cached={record.cached_tokens} output={record.output_tokens}"
        f" ttft={_seconds(record.ttft_s)} e2e={_seconds(record.e2e_s)} {record.outcome}"
    )
    return line if record.prompt is None else f"{line} {json.dumps(record.prompt)}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}s"
