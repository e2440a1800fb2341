import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratoon.server.metrics import VLLM_NAMES, Metrics
from ratoon.server.request_log import Outcome, RequestRecord
from ratoon.server.snapshot import EngineSnapshot

NUMBERS: dict[str, Any] = {field.name: i for i, field in enumerate(fields(EngineSnapshot), 1)}
SNAPSHOT = EngineSnapshot(**NUMBERS | {"num_accepted_by_position": (71, 72)})


def record(**changes: object) -> RequestRecord:
    entries = {
        "request_id": "r",
        "tenant": "t",
        "endpoint": "chat",
        "outcome": Outcome.STOP,
        "num_answers": 1,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "output_tokens": 5,
        "queue_s": 0.5,
        "ttft_s": 1.0,
        "e2e_s": 3.0,
    }
    return RequestRecord(**{**entries, **changes})  # type: ignore[arg-type]


def samples(metrics: Metrics, now: EngineSnapshot | None = SNAPSHOT) -> dict[str, float]:
    """Return every sample by its name and labels."""
    found = {}
    for family in text_string_to_metric_families(metrics.render(now).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found, f"{name} is exported twice"
            found[name] = sample.value
    return found


def test_the_engines_numbers_appear_under_their_names() -> None:
    found = samples(Metrics())
    assert found["ratoon_prefix_cache_queries_total"] == SNAPSHOT.num_query_tokens
    assert found["ratoon_prefix_cache_hits_total"] == SNAPSHOT.num_hit_tokens
    assert found["ratoon_preempted_prefix_cache_hits_total"] == SNAPSHOT.num_preempted_hit_tokens
    assert found["ratoon_kv_cache_blocks{state=idle}"] == SNAPSHOT.num_idle_blocks
    assert found["ratoon_step_seconds_total{part=draft}"] == SNAPSHOT.draft_s
    assert found["ratoon_step_seconds_total{part=apply}"] == SNAPSHOT.apply_s
    assert found["ratoon_spec_decode_draft_tokens_total"] == SNAPSHOT.num_drafts
    assert found["ratoon_spec_decode_accepted_tokens_per_position_total{position=1}"] == 72


def test_before_the_model_is_loaded_there_are_no_engine_metrics_and_no_error() -> None:
    found = samples(Metrics(), None)
    assert "ratoon_requests_total{outcome=stop}" in found
    assert not any("prefix_cache" in name for name in found)


def test_a_finished_request_counts_once_with_the_numbers_of_its_response() -> None:
    metrics = Metrics()
    metrics.observe_request(record())
    metrics.observe_request(record(outcome=Outcome.CANCELLED, output_tokens=0, queue_s=None, ttft_s=None))
    found = samples(metrics)
    assert found["ratoon_prompt_tokens_total"] == 20
    assert found["ratoon_cached_prompt_tokens_total"] == 8
    assert found["ratoon_generation_tokens_total"] == 5
    assert found["ratoon_requests_total{outcome=stop}"] == 1
    assert found["ratoon_requests_total{outcome=cancelled}"] == 1
    assert found["ratoon_requests_total{outcome=failed}"] == 0
    assert found["ratoon_time_to_first_token_seconds_count"] == 1
    assert found["ratoon_e2e_request_latency_seconds_count"] == 2
    assert found["ratoon_time_per_output_token_seconds_sum"] == pytest.approx(0.5)


def test_the_mean_time_per_token_of_several_answers_leaves_out_each_first_token() -> None:
    assert record(num_answers=2, output_tokens=10).tpot_s == pytest.approx(2.0 * 2 / 8)
    assert record(output_tokens=1).tpot_s is None


def test_vllms_names_repeat_ours_with_its_labels() -> None:
    metrics = Metrics(vllm_model="tiny")
    metrics.observe_request(record())
    metrics.observe_itl(0.02)
    found = samples(metrics)
    labels = "engine=0,model_name=tiny"
    assert found[f"vllm:prefix_cache_hits_total{{{labels}}}"] == SNAPSHOT.num_hit_tokens
    assert found[f"vllm:num_requests_waiting{{{labels}}}"] == SNAPSHOT.num_waiting
    assert found[f"vllm:time_to_first_token_seconds_sum{{{labels}}}"] == 1.0
    assert found["vllm:request_success_total{engine=0,finished_reason=stop,model_name=tiny}"] == 1
    exported = {re.sub(r"(_total|_bucket|_sum|_count|_created)?(\{.*)?$", "", name) for name in found}
    assert {name for names in VLLM_NAMES.values() for name in names} <= exported
    assert not any(name.startswith("vllm") for name in samples(Metrics()))


def test_the_dashboard_asks_only_for_metrics_that_exist() -> None:
    dashboard = Path(__file__).parents[2] / "docs/operate/grafana-dashboard.json"
    asked = set(re.findall(r"ratoon_\w+", dashboard.read_text()))
    json.loads(dashboard.read_text())
    metrics = Metrics()
    metrics.observe_http_error(404)
    exported = {name.split("{")[0] for name in samples(metrics)}
    assert asked
    assert asked <= exported
