"""`ratoon inspect` tells a model's shape and what its KV costs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_json_holds_shape_and_costs(run: Run, model: str) -> None:
    ran = run("inspect", model, "--json", "--kv-cache-bytes=1MiB")
    found = json.loads(ran.out)
    assert (found["num_layers"], found["num_kv_heads"], found["head_dim"]) == (30, 3, 64)
    assert found["num_parameters"] == 134_515_008
    assert found["groups"] == [{"kind": "full", "window": None, "layers": list(range(30))}]
    assert found["bytes_per_token"] == found["bytes_per_token_beyond_windows"] == 30 * 2 * 3 * (64 * 2 + 4)
    assert found["bytes_per_block"] == 16 * found["bytes_per_token"]
    smallest, *others = found["budgets"]
    assert smallest == {"kv_cache_bytes": 1 << 20, "num_blocks": 1, "num_tokens": 16, "longest_request": 16}
    assert len(others) == 8


def test_settings_change_the_costs(run: Run, model: str) -> None:
    found = json.loads(run("inspect", model, "--json", "--kv-cache-dtype=f32", "--block-size=32").out)
    assert found["bytes_per_token"] == 30 * 2 * 3 * 64 * 4
    assert found["bytes_per_block"] == 32 * found["bytes_per_token"]


def test_for_people_it_is_a_table(run: Run, model: str) -> None:
    ran = run("inspect", model, "--ops=reference")
    assert "134,515,008 parameters" in ran.out
    assert "30 layers that see everything" in ran.out
    assert "reference" in ran.out
    assert "512 MiB" in ran.out


def test_windows_stop_costing_once_they_are_full(run: Run, gemma_path: Path) -> None:
    found = json.loads(run("inspect", str(gemma_path), "--json", "--kv-cache-bytes=1MiB").out)
    assert [len(group["layers"]) for group in found["groups"]] == [3] * 6
    per_layer = 2 * (256 * 2 + 4)
    assert found["bytes_per_token"] == 18 * per_layer
    assert found["bytes_per_token_beyond_windows"] == 3 * per_layer
    shown = run("inspect", str(gemma_path), "--kv-cache-bytes=1MiB").out
    assert "18.1 KiB per token, 3 KiB beyond the windows" in shown
    assert "3 layers that see a window of 512 tokens" in shown


def test_a_budget_that_could_serve_nothing_is_refused(run: Run, gemma_path: Path) -> None:
    ran = run("inspect", str(gemma_path), "--kv-cache-bytes=256KiB")
    assert ran.status == 2
    assert "256 KiB of KV cache are not 7 blocks of 48.4 KiB" in ran.err
