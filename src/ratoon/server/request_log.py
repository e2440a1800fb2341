"""One line per finished request, for people or as JSON. Keys never come here, prompts only if asked for."""

import json
import time
from dataclasses import asdict
from typing import TextIO

from ratoon.server.record import RequestRecord


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
