"""Loading a model, and building engines on it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratoon.cache.eviction.facts import BlockFacts
from ratoon.cache.eviction.lru import LeastRecentlyUsed
from ratoon.cache.eviction.policy import EvictionPolicy
from ratoon.engine.build import LoadedModel, build_core, load_model, make_ops
from ratoon.engine.config import EngineConfig
from ratoon.engine.cores import usable_cores
from ratoon.engine.open_model import open_model
from ratoon.errors import InvalidParameterError, MissingCheckpointError, RatoonError, UnknownModelError
from ratoon.request.sampling_params import SamplingParams

MEBIBYTE = 1 << 20
SMALL = EngineConfig(kv_cache_bytes=8 * MEBIBYTE)


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> LoadedModel:
    return load_model(smollm2_path, SMALL)


def test_a_model_is_opened_without_its_weights(smollm2_path: Path) -> None:
    opened = open_model(smollm2_path)
    assert opened.spec.num_layers == 30
    assert opened.budget(SMALL).bytes_per_token == 2 * 30 * 3 * (64 * 2 + 4)


def test_the_configuration_is_resolved(model: LoadedModel) -> None:
    assert model.config.threads == usable_cores()
    assert model.config.max_model_len == model.budget.num_usable_blocks * 16


def test_loading_reports_its_progress(smollm2_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    load_model(smollm2_path, SMALL, lambda *report: seen.append(report))
    assert seen[-1][1:] == (30, 30)


def test_token_ids_outside_the_vocabulary_are_refused(model: LoadedModel) -> None:
    assert model.chain([0, 49151]).num_tokens == 2
    with pytest.raises(InvalidParameterError, match="49152"):
        model.chain([0, 49152])
    with pytest.raises(InvalidParameterError, match="50000"):
        model.check_params(SamplingParams(logit_bias={50000: 1.0}))
    with pytest.raises(InvalidParameterError, match="50000"):
        model.check_params(SamplingParams(stop_token_ids=[50000]))  # type: ignore[arg-type]


def test_equal_settings_give_the_same_root_and_others_another(smollm2_path: Path, model: LoadedModel) -> None:
    def root(**settings: object) -> bytes:
        return load_model(smollm2_path, replace(SMALL, **settings)).root  # type: ignore[arg-type]

    assert root() == root(threads=1) == root(max_num_seqs=3) == model.root
    others = {root(block_size=8), root(kv_cache_dtype="f32"), root(ops="reference")}
    assert len(others) == 3
    assert model.root not in others


def test_a_core_may_have_a_smaller_pool_than_the_model(model: LoadedModel) -> None:
    core = build_core(model, replace(model.config, kv_cache_bytes=4 * MEBIBYTE))
    assert 0 < core.scheduler.cache.num_usable_blocks < model.budget.num_usable_blocks


def test_a_core_caches_and_shares_only_where_its_configuration_says_so(model: LoadedModel) -> None:
    def switches(**settings: bool) -> tuple[bool, bool]:
        cache = build_core(model, replace(model.config, **settings)).scheduler.cache  # type: ignore[arg-type]
        return cache.is_caching, cache.is_sharing

    assert switches() == (True, True)
    assert switches(share_in_flight=False) == (True, False)
    assert switches(enable_prefix_caching=False) == (False, False)


def test_a_core_evicts_by_the_policy_of_its_configuration(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make(facts: BlockFacts) -> EvictionPolicy:
        made.append(LeastRecentlyUsed(facts))
        return made[-1]

    monkeypatch.setattr("ratoon.engine.build.EVICTION_POLICIES", {"lru": make})
    cache = build_core(model).scheduler.cache
    chain = model.chain(range(16))
    assert cache.reserve(1, chain, 16)
    cache.commit(1, 16)
    cache.release(1)
    assert len(made[0]) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kv_cache_bytes": 1}, "not 2 blocks"),
        ({"kv_cache_bytes": 1 << 60}, "this machine's"),
        ({"max_model_len": 9000}, "ends at 8192"),
        ({"max_model_len": 8192, "kv_cache_bytes": 8 * MEBIBYTE}, "hold 336 tokens"),
    ],
)
def test_what_cannot_be_held_is_refused(
    smollm2_path: Path, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        load_model(smollm2_path, EngineConfig.from_settings(settings))


@pytest.mark.parametrize(
    ("named", "settings", "message"),
    [
        ({"chat_template": "no/such.jinja"}, {}, "no/such.jinja cannot be read"),
        ({"adapters": {"poet": "no/such"}}, {}, "no adapter folder no/such"),
        ({}, {"speculative": "no-such-model"}, "no model 'no-such-model'"),
        ({}, {"speculative": "smollm2", "speculative_kv_cache_bytes": 1}, "The draft model has no room: 1 B"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_weights_are_read(
    smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    named: dict[str, Any],
    settings: dict[str, object],
    message: str,
) -> None:
    def load_decoder(*args: object, **settings: object) -> None:
        raise AssertionError("the weights are read")

    monkeypatch.setattr("ratoon.engine.build.load_decoder", load_decoder)
    if settings.get("speculative") == "smollm2":
        settings = settings | {"speculative": str(smollm2_path)}
    with pytest.raises(RatoonError, match=message):
        load_model(smollm2_path, EngineConfig.from_settings(settings), **named)


def test_the_pool_of_a_draft_model_is_named_where_it_is_too_small(smollm2_path: Path) -> None:
    settings = {"speculative": str(smollm2_path), "speculative_kv_cache_bytes": 1}
    with pytest.raises(InvalidParameterError) as error:
        load_model(smollm2_path, EngineConfig.from_settings(settings))
    assert "--speculative-kv-cache-bytes" in str(error.value.hint)


def test_ops_are_chosen_by_name() -> None:
    assert make_ops(EngineConfig(ops="reference")).name.startswith("reference")
    assert make_ops(EngineConfig(ops="native", threads=1)).name.startswith("native")
    assert make_ops(EngineConfig()).name.startswith("native")


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="neither pulled nor as a path"):
        open_model("no-such-model")
    with pytest.raises(MissingCheckpointError):
        open_model(tmp_path)
