"""Adapters through the library's face, on the real model."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratoon import LLM, SamplingParams
from ratoon.errors import AdapterBudgetError, InvalidParameterError, UnknownAdapterError

GREEDY = SamplingParams(max_tokens=8, temperature=0)
STORY = "Once upon a time there was a small village at the edge of a large and very old forest. " * 3
CONVERSATION = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def shared_llm(smollm2_path: Path, smollm2_adapters: dict[str, Path]) -> Iterator[LLM]:
    with LLM(smollm2_path, adapters=smollm2_adapters, kv_cache_bytes=64 << 20, max_model_len=1000) as llm:
        yield llm


@pytest.fixture
def llm(shared_llm: LLM, smollm2_adapters: dict[str, Path]) -> LLM:
    """An engine with a cold cache and both adapters under their own names, and no other."""
    for name in shared_llm.model.adapters.by_name:
        shared_llm.unload_adapter(name)
    for name, folder in smollm2_adapters.items():
        shared_llm.load_adapter(name, folder)
    shared_llm.reset_prefix_cache()
    return shared_llm


def tokens(llm: LLM, adapter: Any, prompt: Any = STORY, **changes: Any) -> list[int]:
    [output] = llm.generate(prompt, replace(GREEDY, **changes), adapter=adapter)
    return output.outputs[0].token_ids


def cached(llm: LLM, adapter: str | None) -> int:
    [output] = llm.generate(STORY, GREEDY, adapter=adapter)
    return output.usage.cached_tokens


def test_each_prompt_of_a_call_may_have_an_adapter_of_its_own(llm: LLM) -> None:
    names = [None, "lora_a", "lora_b", "lora_a"]
    alone = [tokens(llm, name) for name in names]
    assert len(set(map(tuple, alone))) == 3
    llm.reset_prefix_cache()
    outputs = llm.generate([STORY] * 4, GREEDY, adapter=names)
    assert [output.outputs[0].token_ids for output in outputs] == alone


def test_every_way_of_asking_takes_an_adapter(llm: LLM) -> None:
    expected = tokens(llm, "lora_b")
    *_, last = llm.stream(STORY, GREEDY, adapter="lora_b")
    assert last.result is not None
    assert last.result.outputs[0].token_ids == expected
    [chat] = llm.chat(CONVERSATION, GREEDY, adapter="lora_b")
    *_, last = llm.stream_chat(CONVERSATION, GREEDY, adapter="lora_b")
    assert last.result is not None
    assert last.result.outputs == chat.outputs
    assert chat.outputs != llm.chat(CONVERSATION, GREEDY)[0].outputs


def test_a_prefix_is_hit_through_the_same_content_only(llm: LLM, smollm2_adapters: dict[str, Path]) -> None:
    assert cached(llm, "lora_a") == 0
    assert cached(llm, None) == 0
    assert cached(llm, "lora_b") == 0
    whole = cached(llm, "lora_a")
    assert whole > 0
    llm.load_adapter("another name", smollm2_adapters["lora_a"])
    assert cached(llm, "another name") == whole


def test_other_weights_under_the_same_name_hit_nothing(llm: LLM, smollm2_adapters: dict[str, Path]) -> None:
    first = tokens(llm, "lora_a")
    llm.load_adapter("lora_a", smollm2_adapters["lora_b"])
    assert cached(llm, "lora_a") == 0
    assert tokens(llm, "lora_a") == tokens(llm, "lora_b") != first
    llm.load_adapter("lora_a", smollm2_adapters["lora_a"])
    assert cached(llm, "lora_a") > 0
    assert tokens(llm, "lora_a") == first


@pytest.mark.parametrize("change", ["reload", "unload"])
def test_a_request_ends_on_the_weights_it_began_with(
    llm: LLM, smollm2_adapters: dict[str, Path], change: str
) -> None:
    expected = tokens(llm, "lora_a", max_tokens=40)
    weights = weakref.ref(llm.model.adapters.get("lora_a").weights)
    stream = llm.stream(STORY, replace(GREEDY, max_tokens=40), adapter="lora_a")
    found = list(next(stream).token_ids)
    if change == "reload":
        llm.load_adapter("lora_a", smollm2_adapters["lora_b"])
    else:
        llm.unload_adapter("lora_a")
    assert weights() is not None
    for delta in stream:
        found += delta.token_ids
    assert found == expected
    assert weights() is None
    others = {llm.model.adapters.get(name) for name in llm.model.adapters.by_name}
    assert llm.model.adapters.num_bytes == sum(adapter.num_bytes for adapter in others)


def test_a_cancelled_request_lets_go_of_its_adapter(llm: LLM) -> None:
    weights = weakref.ref(llm.model.adapters.get("lora_a").weights)
    stream = llm.stream(STORY, replace(GREEDY, max_tokens=None), adapter="lora_a")
    next(stream)
    llm.unload_adapter("lora_a")
    stream.close()
    llm.cache_stats()  # comes after the cancellation
    assert weights() is None


def test_an_unknown_adapter_is_refused_before_anything_runs(llm: LLM) -> None:
    before = llm.cache_stats()
    with pytest.raises(UnknownAdapterError, match="'lora_c'"):
        llm.generate([STORY, STORY], GREEDY, adapter=["lora_a", "lora_c"])
    assert llm.cache_stats() == before


def test_there_are_as_many_adapters_as_prompts_or_one(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match="2 prompts, but 1"):
        llm.generate([STORY, STORY], GREEDY, adapter=["lora_a"])
    with pytest.raises(InvalidParameterError, match="name"):
        llm.generate(STORY, GREEDY, adapter=7)  # type: ignore[arg-type]


def test_a_budget_without_room_is_said_at_the_start(
    smollm2_path: Path, smollm2_adapters: dict[str, Path]
) -> None:
    with pytest.raises(AdapterBudgetError, match=r"takes 3\.1 MiB, but of 2 MiB"):
        LLM(smollm2_path, adapters=smollm2_adapters, adapter_bytes=2 << 20, kv_cache_bytes=8 << 20)
