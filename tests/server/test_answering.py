"""What becomes of requests when clients leave, steps fail, time runs out or too many come. On a fake model."""

import json
import threading
from typing import Any

import pytest

from ratoon.server.limits import ServerLimits, TenantLimits

LONG = {"prompt": "a long answer", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


def post_in_background(server: Any, body: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    replies: list[Any] = []
    thread = threading.Thread(target=lambda: replies.append(server.post("/v1/completions", body)))
    thread.start()
    return thread, replies


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_blocks_within_a_step(start_server: Any, stream: bool) -> None:
    server = start_server()
    server.runner.go.clear()
    with server.opened("POST", "/v1/completions", {**LONG, "stream": stream}) if stream else _sent(server, LONG):
        server.runner.begun.acquire()
    # The step under way is the last one that the request is in.
    while not server.core.scheduler.num_running:
        pass
    server.wait_for_disconnects()
    server.runner.go.set()
    server.check_blocks()
    assert server.metrics()['ratoon_requests_total{outcome="cancelled"}'] == 1
    assert " cancelled\n" in server.log.getvalue()
