"""`ratoon serve` as a person runs it: a process of its own, on the real model."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ratoon import LLM, SamplingParams
from ratoon.errors import UsageError
from ratoon.server.serve import bind

PROMPT = "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is"


@contextmanager
def serving(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", list[str], int]]:
    """Start a server; yield the process, the lines it printed at its start, and its port."""
    command = [
        sys.executable,
        "-m",
        "ratoon",
        "serve",
        *arguments,
        "--port",
        "0",
        "--kv-cache-bytes",
        "32MiB",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if match := re.match(r"listening .*:(\d+)\n", line):
                    yield process, lines, int(match[1])
                    break
        finally:
            process.kill()


def post(port: int, body: dict[str, Any]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    reply = json.loads(connection.getresponse().read())
    connection.close()
    return reply


def test_a_served_answer_is_the_librarys_and_a_warm_one_the_same(smollm2_path: Path) -> None:
    with LLM(smollm2_path, kv_cache_bytes=32 << 20) as llm:
        (output,) = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=8, logprobs=0))
    expected = output.outputs[0]
    with serving(str(smollm2_path), "--served-model-name", "smollm2") as (process, lines, port):
        cold, warm = (
            post(port, {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "logprobs": 0}) for _ in range(2)
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
    for reply in (cold, warm):
        choice = reply["choices"][0]
        assert choice["text"] == expected.text
        assert choice["logprobs"]["token_logprobs"] == [
            entry[token_id]
            for entry, token_id in zip(expected.logprobs or [], expected.token_ids, strict=True)
        ]
    assert cold["usage"]["prompt_tokens"] == len(output.prompt_token_ids)
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == len(output.prompt_token_ids) // 16 * 16
    start = "".join(lines)
    for word in (
        "model",
        "groups",
        "block size",
        "minimum reusable prefix",
        "pool",
        "isolation",
        "listening",
    ):
        assert word in start


def test_a_model_that_is_not_there_ends_the_server_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ratoon", "serve", str(tmp_path / "none.gguf"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2)
    assert done.stdout == ""
    assert re.fullmatch(r"error: .*\n(hint: .*\n)?", done.stderr)


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1 port {port}: "):
            bind("127.0.0.1", port)


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(UsageError, match=r"cannot listen on 256\.0\.0\.1 port 80: "):
        bind("256.0.0.1", 80)
