import threading
from typing import Any

import pytest

import ratoon
from ratoon.draft.stats import DraftStats
from ratoon.engine.core import EngineCore
from ratoon.errors import CorruptCheckpointError


def test_a_running_server_is_alive_and_ready_and_knows_its_version(server: Any) -> None:
    assert server.get("/health").json == {"status": "alive"}
    assert server.get("/ready").json == {"status": "ready"}
    assert server.get("/version").json == {"version": ratoon.__version__}


def test_ready_says_when_guessing_failed_and_metrics_count_it(
    start_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server()
    monkeypatch.setattr(EngineCore, "draft_stats", DraftStats(num_failures=2, num_paused_steps=87))
    assert server.get("/ready").json == {
        "status": "ready",
        "speculation": "paused because guessing failed; tried again in 87 steps",
    }
    found = server.metrics()
    assert found["ratoon_spec_decode_failures_total"] == 2
    assert found["ratoon_spec_decode_paused_steps"] == 87


def test_health_answers_while_a_step_runs(start_server: Any) -> None:
    server = start_server()
    server.runner.hold()
    with server.sent("/v1/completions", {"prompt": "x", "max_tokens": 3}):
        server.runner.wait_for_steps(1)
        assert [server.get(path).status for path in ("/health", "/ready", "/version")] == [200] * 3
    server.runner.allow(None)


def test_counters_equal_the_sum_of_what_responses_reported(start_server: Any) -> None:
    server = start_server()
    bodies = [
        server.complete(
            f"{'shared ' * (i % 4)}{i % 3}", n=1 + i % 2, max_tokens=1 + i % 5, include_cache_report=True
        )
        for i in range(24)
    ]
    found = server.metrics()
    usages = [body["usage"] for body in bodies]
    reports = [usage["ratoon"] for usage in usages]
    assert found["ratoon_prompt_tokens_total"] == sum(usage["prompt_tokens"] for usage in usages)
    assert found["ratoon_generation_tokens_total"] == sum(usage["completion_tokens"] for usage in usages)
    cached = [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]
    assert found["ratoon_cached_prompt_tokens_total"] == sum(cached)
    assert found["ratoon_prefix_cache_hits_total"] == sum(report["cached_tokens"] for report in reports)
    queries = sum(report["cached_tokens"] + report["computed_tokens"] for report in reports)
    assert found["ratoon_prefix_cache_queries_total"] == queries
    assert found["ratoon_e2e_request_latency_seconds_count"] == len(bodies)
    assert sum(value for name, value in found.items() if name.startswith("ratoon_requests_total")) == len(
        bodies
    )


def test_commit_lag_is_what_stands_in_unfilled_blocks(start_server: Any) -> None:
    server = start_server()
    server.runner.hold()
    with server.sent("/v1/completions", {"prompt": "nine long", "max_tokens": 9, "ignore_eos": True}):
        server.runner.wait_for_steps(1)
        scrape = server.in_background("GET", "/metrics")
        server.wait_for_jobs()
        server.runner.allow(1)
        text = scrape.reply().body.decode()
    server.runner.allow(None)
    assert "\nratoon_commit_lag_tokens 1.0\n" in text
    assert '\nratoon_kv_cache_blocks{state="active"} 3.0\n' in text
    server.wait_until_idle()
    assert server.metrics()["ratoon_commit_lag_tokens"] == 0


def test_until_the_model_is_loaded_the_server_lives_and_is_not_ready(start_server: Any) -> None:
    may_load = threading.Event()
    server = start_server(before_load=lambda: may_load.wait(timeout=30) and None)
    assert server.get("/health").status == 200
    for reply in (server.get("/ready"), server.post("/v1/completions", {"prompt": "x"})):
        assert (reply.status, reply.json["error"]["code"]) == (503, "not_ready")
    assert "ratoon_steps_total" not in server.metrics()
    may_load.set()
    server.wait_for(lambda: server.get("/ready").status == 200)


def test_a_model_that_cannot_be_loaded_is_told_to_whoever_started_the_server(start_server: Any) -> None:
    def fail() -> None:
        raise CorruptCheckpointError("The model is broken.")

    server = start_server(before_load=fail)
    assert server.get("/health").status == 200
    server.wait_for(lambda: server.service.load_error is not None)
    assert server.service.load_error.message == "The model is broken."
    assert server.get("/ready").status == 503
