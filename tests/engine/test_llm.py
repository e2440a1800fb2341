"""The library's face, on the real model."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ratoon import LLM, SamplingParams
from ratoon.engine.output import OutputDelta, RequestOutput
from ratoon.engine.prompts import Prompt
from ratoon.errors import (
    EmptyPromptError,
    EngineError,
    InvalidParameterError,
    PromptTooLongError,
    RequestError,
)
from ratoon.request.request import Request
from ratoon.sched.scheduler import Scheduler

GREEDY = SamplingParams(max_tokens=8, temperature=0)
SAMPLED = SamplingParams(max_tokens=8, temperature=1, seed=7)
FRANCE = "The capital of France is"
STORY = "Once upon a time there was a small village at the edge of a large and very old forest. " * 3
CONVERSATION = [{"role": "user", "content": "Say hello."}]


@pytest.fixture(scope="module")
def shared_llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, kv_cache_bytes=64 << 20, max_model_len=1000) as llm:
        yield llm


@pytest.fixture
def llm(shared_llm: LLM) -> LLM:
    """An engine with a cold cache."""
    shared_llm.reset_prefix_cache()
    return shared_llm


def everything_free(llm: LLM) -> bool:
    stats = llm.cache_stats()
    return stats["num_free_blocks"] == stats["num_usable_blocks"]


def streamed(deltas: Iterator[OutputDelta]) -> tuple[list[OutputDelta], RequestOutput]:
    collected = list(deltas)
    assert collected[-1].result is not None
    assert all(delta.result is None for delta in collected[:-1])
    return collected, collected[-1].result


def test_one_prompt_gives_one_output(llm: LLM) -> None:
    [output] = llm.generate(FRANCE, GREEDY)
    assert output.prompt == FRANCE
    assert output.outputs[0].text.startswith(" Paris")
    assert output.outputs[0].finish_reason == "length"
    assert output.usage.completion_tokens == len(output.outputs[0].token_ids) == 8
    assert output.ttft_s is not None
    assert 0 < output.ttft_s <= output.e2e_s


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    [france] = llm.generate(FRANCE, GREEDY)
    ids = france.prompt_token_ids
    short = replace(GREEDY, max_tokens=1)
    prompts: list[Prompt] = [STORY, FRANCE, ids]
    outputs = llm.generate(prompts, [GREEDY, GREEDY, short])
    assert [output.prompt for output in outputs] == [STORY, FRANCE, None]
    assert outputs[1].outputs[0].token_ids == france.outputs[0].token_ids
    assert outputs[2].outputs[0].token_ids == france.outputs[0].token_ids[:1]


def test_token_ids_alone_are_one_prompt(llm: LLM) -> None:
    [output] = llm.generate([504, 3575, 282], GREEDY)
    assert output.prompt_token_ids == [504, 3575, 282]


def test_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert llm.generate([]) == []
    assert llm.chat([]) == []


def test_a_prompt_is_cached_in_whole_blocks_the_second_time(llm: LLM) -> None:
    [cold] = llm.generate(STORY, GREEDY)
    [warm] = llm.generate(STORY, GREEDY)
    num_tokens = len(cold.prompt_token_ids)
    assert cold.usage.cached_tokens == 0
    assert warm.usage.cached_tokens == num_tokens // 16 * 16
    assert str(cold.usage.limited_by) == "full attention: the next block was not cached"
    assert str(warm.usage.limited_by) == "nothing: every full block was cached"
    assert warm.usage.cached_tokens + warm.usage.computed_tokens == warm.usage.prompt_tokens == num_tokens
    assert warm.outputs == cold.outputs


def test_prompts_of_one_call_share_what_they_have_in_common(llm: LLM) -> None:
    outputs = llm.generate([STORY] * 4, GREEDY)
    num_tokens = len(outputs[0].prompt_token_ids)
    assert [output.usage.cached_tokens for output in outputs] == [0] + [num_tokens // 16 * 16] * 3


def test_a_stream_says_the_same_in_pieces(llm: LLM) -> None:
    [whole] = llm.generate(FRANCE, GREEDY)
    deltas, result = streamed(llm.stream(FRANCE, GREEDY))
    assert "".join(delta.text for delta in deltas) == whole.outputs[0].text
    assert [token for delta in deltas for token in delta.token_ids] == whole.outputs[0].token_ids
    assert result.outputs == whole.outputs


def test_a_stop_string_ends_the_answer_before_it(llm: LLM) -> None:
    params = replace(GREEDY, max_tokens=100, stop=("answer",))
    [output] = llm.generate(FRANCE, params)
    completion = output.outputs[0]
    assert completion.text == " Paris.\n\nThe "
    assert (completion.finish_reason, completion.stop_reason) == ("stop", "answer")
    assert output.usage.completion_tokens == len(completion.token_ids) < 100
    assert everything_free(llm)


def test_a_stop_token_ends_the_answer_and_is_told(llm: LLM) -> None:
    [free] = llm.generate(FRANCE, GREEDY)
    stop = free.outputs[0].token_ids[2]
    [output] = llm.generate(FRANCE, replace(GREEDY, stop_token_ids=(stop,)))
    assert output.outputs[0].token_ids == free.outputs[0].token_ids[:3]
    assert output.outputs[0].stop_reason == stop


def test_several_answers_differ_and_share_the_prompt(llm: LLM) -> None:
    before = llm.cache_stats()
    [output] = llm.generate(STORY, replace(SAMPLED, n=4, temperature=1.5))
    num_hits = llm.cache_stats()["num_hit_tokens"] - before["num_hit_tokens"]
    assert [completion.index for completion in output.outputs] == [0, 1, 2, 3]
    assert len({tuple(completion.token_ids) for completion in output.outputs}) == 4
    assert output.usage.completion_tokens == 32
    assert output.usage.prompt_tokens == len(output.prompt_token_ids)
    assert num_hits == 3 * (output.usage.prompt_tokens // 16 * 16)


def test_a_priority_reaches_every_request(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    priorities = []
    add = Scheduler.add

    def noticed(self: Scheduler, request: Request, now: float) -> None:
        priorities.append(request.priority)
        add(self, request, now)

    monkeypatch.setattr(Scheduler, "add", noticed)
    llm.generate([FRANCE, STORY], GREEDY, priority=-2)
    llm.chat(CONVERSATION, GREEDY, priority=3)
    streamed(llm.stream(FRANCE, replace(GREEDY, n=2), priority=1))
    streamed(llm.stream_chat(CONVERSATION, GREEDY))
    assert priorities == [-2, -2, 3, 1, 1, 0]


def test_a_seed_fixes_the_output_whatever_else_runs(llm: LLM) -> None:
    [alone] = llm.generate(FRANCE, SAMPLED)
    outputs = llm.generate([STORY, FRANCE, FRANCE], [GREEDY, SAMPLED, replace(SAMPLED, seed=8)])
    assert outputs[1].outputs == alone.outputs
    assert outputs[2].outputs != alone.outputs


def test_logprobs_name_the_best_tokens_and_the_chosen_one(llm: LLM) -> None:
    [output] = llm.generate(FRANCE, replace(SAMPLED, logprobs=2, temperature=2))
    completion = output.outputs[0]
    assert completion.logprobs is not None
    for token, entry in zip(completion.token_ids, completion.logprobs, strict=True):
        assert 2 <= len(entry) <= 3
        assert token in entry
        assert max(entry.values()) <= 0


def test_prompt_logprobs_score_every_position_afresh(llm: LLM) -> None:
    llm.generate(STORY, GREEDY)
    [output] = llm.generate(STORY, replace(GREEDY, prompt_logprobs=1))
    assert output.usage.cached_tokens == 0
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    scored = zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True)
    assert all(entry is not None and token in entry for token, entry in scored)


def test_chat_puts_messages_through_the_template(llm: LLM) -> None:
    [output] = llm.chat(CONVERSATION, GREEDY)
    [other] = llm.chat([CONVERSATION], GREEDY)
    assert output.prompt is None
    assert output.outputs == other.outputs
    assert "<|im_start|>" in "".join(map(llm.model.tokenizer.token_text, output.prompt_token_ids))
    deltas, result = streamed(llm.stream_chat(CONVERSATION, GREEDY))
    assert result.outputs == output.outputs
    assert "".join(delta.text for delta in deltas) == output.outputs[0].text


def test_a_stream_that_is_closed_early_frees_its_blocks(llm: LLM) -> None:
    stream = llm.stream(STORY, replace(GREEDY, max_tokens=None))
    next(stream)
    assert not everything_free(llm)
    stream.close()
    assert everything_free(llm)


def test_ctrl_c_cancels_what_runs(llm: LLM) -> None:
    stream = llm.stream(STORY, replace(GREEDY, max_tokens=None))
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt)
    assert everything_free(llm)


def test_several_threads_may_ask_at_once(llm: LLM) -> None:
    [alone] = llm.generate(FRANCE, GREEDY)
    found: list[RequestOutput] = []
    threads = [threading.Thread(target=lambda: found.extend(llm.generate(FRANCE, GREEDY))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [output.outputs for output in found] == [alone.outputs] * 4


def test_a_reset_forgets_and_tells_how_much(llm: LLM) -> None:
    llm.generate(STORY, GREEDY)
    num_idle = llm.cache_stats()["num_idle_blocks"]
    assert llm.reset_prefix_cache().num_dropped_blocks == num_idle > 0
    [output] = llm.generate(STORY, GREEDY)
    assert output.usage.cached_tokens == 0


def test_counters_add_up_to_what_the_outputs_report(llm: LLM) -> None:
    before = llm.cache_stats()
    outputs = llm.generate([STORY, STORY, FRANCE], GREEDY)
    after = llm.cache_stats()
    queries = after["num_query_tokens"] - before["num_query_tokens"]
    hits = after["num_hit_tokens"] - before["num_hit_tokens"]
    assert queries == sum(output.usage.prompt_tokens for output in outputs)
    assert hits == sum(output.usage.cached_tokens for output in outputs)


@pytest.mark.parametrize(
    ("prompt", "error"),
    [
        ("", EmptyPromptError),
        ([[]], EmptyPromptError),
        ([1] * 1000, PromptTooLongError),
        ([1, 60_000], InvalidParameterError),
        ([1, -1], InvalidParameterError),
        ([1, "two"], InvalidParameterError),
        (7.5, InvalidParameterError),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused(llm: LLM, prompt: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        llm.generate(prompt, GREEDY)  # type: ignore[arg-type]
    assert everything_free(llm)


def test_one_bad_prompt_refuses_the_whole_list(llm: LLM) -> None:
    before = llm.cache_stats()
    prompts: list[Prompt] = [FRANCE, [1] * 1000]
    with pytest.raises(RequestError):
        llm.generate(prompts, GREEDY)
    assert llm.cache_stats() == before


def test_there_are_as_many_params_as_prompts_or_one(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match="2 prompts, but 3"):
        llm.generate([FRANCE, STORY], [GREEDY] * 3)


@pytest.mark.parametrize("params", [{"max_tokens": 2}, 3, "greedy", [GREEDY, GREEDY]])
def test_params_of_a_wrong_type_are_refused_before_anything_runs(llm: LLM, params: Any) -> None:
    for ask in (llm.stream, llm.generate):
        with pytest.raises(InvalidParameterError):
            ask(FRANCE, params)
    for chat in (llm.stream_chat, llm.chat):
        with pytest.raises(InvalidParameterError):
            chat(CONVERSATION, params)


@pytest.mark.parametrize("priority", ["high", 1.5, None, True])
def test_a_priority_is_a_whole_number(llm: LLM, priority: Any) -> None:
    with pytest.raises(InvalidParameterError, match="priority must be a whole number"):
        llm.generate(FRANCE, GREEDY, priority=priority)


def test_a_conversation_is_a_list_of_messages(llm: LLM) -> None:
    with pytest.raises(InvalidParameterError, match="list of messages"):
        llm.chat("hello", GREEDY)  # type: ignore[arg-type]


def test_a_closed_engine_refuses_work(smollm2_path: Path) -> None:
    with LLM(smollm2_path, kv_cache_bytes=8 << 20) as llm:
        llm.generate(FRANCE, replace(GREEDY, max_tokens=1))
    with pytest.raises(EngineError, match="closed"):
        llm.generate(FRANCE, GREEDY)


def test_an_unknown_setting_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(InvalidParameterError, match="kv_cache_size"):
        LLM("smollm2", kv_cache_size=3)
