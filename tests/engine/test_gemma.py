"""What cache groups with windows do for the memory and the hits of the real Gemma 3."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ratoon import LLM, SamplingParams
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.errors import InvalidParameterError
from ratoon.request.request import Request

WINDOW = 512
LAYER_BYTES = 2 * (256 * 2 + 4)
"""What a token costs in a layer."""
GREEDY = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(gemma_path: Path) -> Iterator[LLM]:
    with LLM(gemma_path, kv_cache_bytes=32 << 20) as llm:
        yield llm


@pytest.fixture
def model(llm: LLM) -> LoadedModel:
    llm.reset_prefix_cache()
    return llm.model


def test_beyond_the_window_a_sequence_grows_in_the_full_group_only(model: LoadedModel) -> None:
    budget = model.budget
    assert budget.bytes_per_token == 18 * LAYER_BYTES
    assert budget.bytes_per_token_beyond_windows == 3 * LAYER_BYTES
    core = build_core(model)
    cache = core.scheduler.cache
    rng = random.Random(1)
    prompt = [rng.randrange(model.spec.vocab_size) for _ in range(2100)]
    request = Request(1, model.chain(prompt), replace(GREEDY, max_tokens=20), seed=1)
    core.add(request)
    held: dict[int, int] = {}
    while core.has_work:
        core.step()
        held[request.num_computed] = (cache.num_usable_blocks - cache.num_free_blocks) * budget.page_bytes
        for table in request.block_tables[1:]:
            assert len(table) - table.count(0) <= WINDOW // 16 + 1 + 256 // 16
        if request.num_generated > 1:
            assert all(len(table) - table.count(0) <= WINDOW // 16 + 1 for table in request.block_tables[1:])
    assert held[512] == 512 * 18 * LAYER_BYTES
    for num_tokens in range(512, 2048, 256):
        assert held[num_tokens + 256] - held[num_tokens] == 256 * 3 * LAYER_BYTES
    assert cache.num_free_blocks == cache.num_usable_blocks


def test_the_least_prefix_that_is_reused_is_one_block(llm: LLM, model: LoadedModel) -> None:
    for length, cached in ((15, 0), (16, 15), (17, 16), (33, 32)):
        prompt = [length] * length
        llm.generate(prompt, GREEDY)
        [again] = llm.generate(prompt, GREEDY)
        assert again.usage.cached_tokens == cached


def test_a_prompt_longer_than_the_window_is_hit_to_its_last_full_block(llm: LLM, model: LoadedModel) -> None:
    prompt = [7, 8, 9] * 300
    [cold] = llm.generate(prompt, GREEDY)
    [longer] = llm.generate([*prompt, 5], GREEDY)
    [fork] = llm.generate([*prompt[:700], 5], GREEDY)
    assert [output.usage.cached_tokens for output in (cold, longer, fork)] == [0, 896, 688]
    assert str(longer.usage.limited_by) == "nothing: every full block was cached"


def test_a_pool_without_a_block_for_every_group_is_refused(gemma_path: Path) -> None:
    for num_blocks in (2, 6):
        with pytest.raises(InvalidParameterError, match=r"are not 7 blocks of 48\.4 KiB"):
            load_model(gemma_path, EngineConfig(kv_cache_bytes=num_blocks * 16 * 3 * LAYER_BYTES))
