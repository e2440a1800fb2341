"""Prompts of parts through the library's face, on the real model."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from ratoon import LLM, Media, PromptParts, SamplingParams
from ratoon.engine.prompts import Prompt
from ratoon.errors import EmptyPromptError, InvalidParameterError, PoolTooSmallError, PromptTooLongError
from ratoon.identity.digest import digest

GREEDY = SamplingParams(max_tokens=6, temperature=0)
WIDTH = 576
ROWS = np.random.default_rng(1).normal(0, 0.1, (40, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def shared_llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, kv_cache_bytes=6 << 20) as llm:
        yield llm


@pytest.fixture
def llm(shared_llm: LLM) -> LLM:
    """An engine with a cold cache."""
    shared_llm.reset_prefix_cache()
    return shared_llm


def test_a_prompt_of_parts_is_answered_and_cached(llm: LLM) -> None:
    prompt = PromptParts("Look at this: ", ROWS, [504, 3575], " What is it?")
    [cold] = llm.generate(prompt, GREEDY)
    [warm] = llm.generate([prompt], GREEDY)
    *_, last = llm.stream(prompt, GREEDY)
    assert last.result is not None
    assert cold.outputs == warm.outputs == last.result.outputs
    num_tokens = cold.usage.prompt_tokens
    assert num_tokens == len(cold.prompt_token_ids)
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, num_tokens // 16 * 16)
    assert cold.prompt is None
    text = llm.model.tokenizer.encode("Look at this: ", add_special=True, parse_special=True)
    assert cold.prompt_token_ids[: len(text) + 42] == [*text, *[0] * 40, 504, 3575]


def test_prompts_of_every_kind_go_together(llm: LLM) -> None:
    prompts: list[Prompt] = [
        "Once",
        [504, 3575],
        PromptParts(ROWS[:5]),
        PromptParts(Media(b"a.png", ROWS[:5])),
    ]
    together = llm.generate(prompts, GREEDY)
    assert together[2].outputs == together[3].outputs
    assert [output.outputs for output in together] == [llm.generate(p, GREEDY)[0].outputs for p in prompts]


def test_equal_media_share_and_others_do_not(llm: LLM) -> None:
    counts = [
        llm.generate(PromptParts(part, [7]), GREEDY)[0].usage.cached_tokens
        for part in (Media(b"cat.png", ROWS), Media(b"cat.png", ROWS), Media(b"dog.png", ROWS), ROWS)
    ]
    assert counts == [0, 32, 0, 0]


def test_there_is_no_token_to_score_where_a_row_stands(llm: LLM) -> None:
    params = replace(GREEDY, prompt_logprobs=1)
    [output] = llm.generate(PromptParts([504, 3575], ROWS[:2], [282, 253]), params)
    assert output.prompt_logprobs is not None
    assert [entry is None for entry in output.prompt_logprobs] == [True, False, True, True, False, False]
    assert 282 in (output.prompt_logprobs[4] or {})


def test_a_part_is_digested_once_for_all_answers_chunks_and_preemptions(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Mock(wraps=digest)
    monkeypatch.setattr("ratoon.request.input_rows.digest", counted)
    num_blocks = llm.cache_stats()["num_usable_blocks"]
    parts = PromptParts(np.tile(ROWS, (4, 1)), [7], ROWS)
    before = llm.cache_stats()["num_preemptions"]
    params = SamplingParams(max_tokens=(num_blocks - 13) * 16, n=2, seed=1, ignore_eos=True)
    llm.generate(parts, params)
    assert counted.call_count == 2
    assert llm.cache_stats()["num_preemptions"] > before


@pytest.mark.parametrize(
    ("prompt", "error", "message"),
    [
        (PromptParts(), EmptyPromptError, "no tokens"),
        (PromptParts(""), EmptyPromptError, "no tokens"),
        (PromptParts(ROWS[:0]), InvalidParameterError, r"takes \[n, 576\]"),
        (PromptParts(ROWS[:, :575]), InvalidParameterError, r"shape \[40, 575\]"),
        (PromptParts("a", ROWS * np.float32(np.nan)), InvalidParameterError, "NaN"),
        (PromptParts([60_000], ROWS), InvalidParameterError, "vocabulary"),
        (PromptParts([-1], ROWS), InvalidParameterError, "token id"),
        (PromptParts(np.tile(ROWS, (250, 1))), (PromptTooLongError, PoolTooSmallError), "10000 tokens"),
        (ROWS, InvalidParameterError, "PromptParts"),
        (["a", ROWS], InvalidParameterError, "PromptParts"),
    ],
)
def test_parts_that_cannot_be_served_are_refused(
    llm: LLM, prompt: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        llm.generate(prompt, GREEDY)  # type: ignore[arg-type]
    stats = llm.cache_stats()
    assert stats["num_free_blocks"] == stats["num_usable_blocks"]
