"""What becomes of requests when clients leave, steps fail, time runs out or too many come."""

import json
from typing import Any

import pytest

from ratoon.server.http.limits import ServerLimits, TenantLimits

LONG = {"prompt": "a long answer", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("num_steps", [0, 1, 5])
def test_a_client_that_goes_away_frees_its_blocks_before_the_next_step(
    start_server: Any, stream: bool, num_steps: int
) -> None:
    server = start_server()
    server.runner.hold()
    with server.sent("/v1/completions", {**LONG, "stream": stream}):
        server.runner.allow(num_steps)
        server.runner.wait_for_steps(num_steps + 1)
    server.wait_for_jobs()
    server.runner.allow(None)
    server.check_blocks()
    assert server.runner.num_begun == num_steps + 1
    assert server.metrics()['ratoon_requests_total{outcome="cancelled"}'] == 1
    assert " cancelled\n" in server.log.getvalue()


def test_a_client_that_goes_away_from_the_queue_is_forgotten(start_server: Any) -> None:
    server = start_server(max_num_seqs=1)
    server.runner.hold()
    running = server.in_background("POST", "/v1/completions", LONG)
    server.runner.wait_for_steps(1)
    with server.sent("/v1/completions", {**LONG, "prompt": "other"}):
        server.wait_for_requests(2)
    server.wait_for_jobs(2)
    server.runner.allow(None)
    assert running.reply().status == 200
    server.check_blocks()
    assert server.metrics()['ratoon_requests_total{outcome="cancelled"}'] == 1


def test_a_lower_priority_goes_first_of_those_that_wait(start_server: Any) -> None:
    server = start_server(max_num_seqs=1, log_json=True)
    server.runner.hold()
    replies = [server.in_background("POST", "/v1/completions", LONG)]
    server.runner.wait_for_steps(1)
    for number, priority in enumerate((7, 3, 0, 3)):
        body = {**LONG, "prompt": "x" * (number + 1), "priority": priority}
        replies.append(server.in_background("POST", "/v1/completions", body))
        server.wait_for_requests(number + 2)
    server.runner.allow(None)
    assert all(background.reply().status == 200 for background in replies)
    server.wait_until_idle()
    lines = [json.loads(line) for line in server.log.getvalue().splitlines()]
    assert [line["prompt_tokens"] for line in lines] == [len("a long answer"), 3, 2, 4, 1]


def test_a_failed_step_fails_only_its_requests(start_server: Any) -> None:
    server = start_server(max_num_seqs=1)
    server.runner.hold()
    failing = server.in_background("POST", "/v1/completions", LONG)
    server.runner.wait_for_steps(1)
    waiting = server.in_background("POST", "/v1/completions", {**LONG, "prompt": "other"})
    server.wait_for_requests(2)
    server.runner.num_failures = 1
    server.runner.allow(None)
    reply = failing.reply()
    assert (reply.status, reply.json["error"]["code"]) == (500, "engine_error")
    assert waiting.reply().status == 200
    server.check_blocks()
    found = server.metrics()
    assert found['ratoon_requests_total{outcome="failed"}'] == 1
    assert found['ratoon_requests_total{outcome="length"}'] == 1
    assert found["ratoon_failed_steps_total"] == 1


def test_a_step_that_fails_in_a_stream_ends_it_with_an_error_event(start_server: Any) -> None:
    server = start_server()
    server.runner.hold()
    server.runner.allow(2)
    with server.opened("POST", "/v1/completions", {**LONG, "stream": True}) as response:
        assert response.status == 200
        server.runner.wait_for_steps(3)
        server.runner.num_failures = 1
        server.runner.allow(None)
        *_, error, done, _ = response.read().decode().split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_error"
    assert done == "data: [DONE]"
    server.check_blocks()


def test_what_a_failed_step_computed_is_never_found(start_server: Any) -> None:
    server = start_server()
    server.runner.num_failures = 1
    assert server.post("/v1/completions", LONG).status == 500
    body = server.complete(**LONG)
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_repeated_failures_make_the_server_unready_until_a_step_succeeds(start_server: Any) -> None:
    server = start_server()
    server.runner.num_failures = 3
    states = []
    for _ in range(4):
        states.append(server.get("/ready").status)
        server.post("/v1/completions", LONG)
    assert [*states, server.get("/ready").status] == [200, 200, 200, 503, 200]
    assert server.get("/health").status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_past_its_deadline_is_given_up(start_server: Any, stream: bool) -> None:
    server = start_server()
    server.runner.hold()
    request = server.in_background("POST", "/v1/completions", {**LONG, "stream": stream})
    server.runner.wait_for_steps(1)
    server.let_deadlines_pass()
    server.wait_for_jobs()
    server.runner.allow(None)
    reply = request.reply()
    assert (reply.status, reply.json["error"]["code"]) == (504, "deadline_exceeded")
    server.check_blocks()
    assert server.metrics()['ratoon_requests_total{outcome="deadline"}'] == 1


def test_a_stream_past_its_deadline_ends_with_an_error_event(start_server: Any) -> None:
    server = start_server()
    server.runner.hold()
    server.runner.allow(1)
    with server.opened("POST", "/v1/completions", {**LONG, "stream": True}) as response:
        server.runner.wait_for_steps(2)
        server.let_deadlines_pass()
        server.wait_for_jobs()
        server.runner.allow(None)
        *_, error, done, _ = response.read().decode().split("\n\n")
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
    assert done == "data: [DONE]"
    server.check_blocks()


def test_too_many_requests_at_once_are_asked_to_come_again(start_server: Any) -> None:
    server = start_server(limits=ServerLimits(max_concurrent_requests=1))
    server.runner.hold()
    running = server.in_background("POST", "/v1/completions", LONG)
    server.runner.wait_for_steps(1)
    reply = server.post("/v1/completions", LONG)
    assert (reply.status, reply.json["error"]["code"]) == (429, "rate_limit_exceeded")
    assert int(reply.headers["retry-after"]) >= 1
    server.runner.allow(None)
    assert running.reply().status == 200
    assert server.post("/v1/completions", LONG).status == 200


def test_a_tenants_token_limits_are_told(start_server: Any) -> None:
    server = start_server(tenant_limits=TenantLimits(max_prompt_tokens=10, max_output_tokens=4))
    reply = server.post("/v1/completions", {"prompt": "x" * 11})
    assert (reply.status, reply.json["error"]["code"]) == (400, "context_length_exceeded")
    reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 5})
    assert (reply.status, reply.json["error"]["param"]) == (400, "max_tokens")
    assert server.complete("x", max_tokens=4, ignore_eos=True)["usage"]["completion_tokens"] == 4


def test_an_answer_without_a_wish_gets_the_tenants_most(start_server: Any) -> None:
    server = start_server(tenant_limits=TenantLimits(max_output_tokens=4))
    chat = {"messages": [{"role": "user", "content": "x"}], "ignore_eos": True}
    assert server.post("/v1/chat/completions", chat).json["usage"]["completion_tokens"] == 4


def test_a_stopping_server_finishes_what_runs_and_takes_nothing_new(start_server: Any) -> None:
    server = start_server()
    server.runner.hold()
    running = server.in_background("POST", "/v1/completions", LONG)
    server.runner.wait_for_steps(1)
    with server.opened("GET", "/health") as kept_alive:
        kept_alive.read()
        server.server.should_exit = True
        server.wait_for_drain()
        server.runner.allow(None)
        assert running.reply().status == 200
    server.thread.join(timeout=30)
    assert not server.thread.is_alive()


def test_a_stopping_server_waits_no_longer_than_told(start_server: Any) -> None:
    server = start_server(drain_timeout_s=0.05)
    server.runner.hold()
    running = server.in_background("POST", "/v1/completions", LONG)
    server.runner.wait_for_steps(1)
    server.server.should_exit = True
    server.wait_for_drain()
    server.wait_for_jobs()
    server.runner.allow(None)
    reply = running.reply()
    assert (reply.status, reply.json["error"]["message"]) == (504, "The server is stopping.")


def test_a_draining_service_is_not_ready(start_server: Any) -> None:
    server = start_server()
    server.service.is_draining = True
    assert server.get("/ready").status == 503
    assert server.post("/v1/completions", LONG).json["error"]["code"] == "not_ready"
    assert server.get("/health").status == 200
    assert "ratoon_steps_total" in server.metrics()
