from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.device.model.decoder import Decoder
from ratoon.device.ops.native import NativeOps
from ratoon.device.ops.protocol import Floats, Ints, Ops, StepInputs
from ratoon.device.ops.reference import ReferenceOps
from ratoon.device.runner.model_runner import LOGIT_ROWS, ModelRunner
from ratoon.device.sampling.logprobs import top_logprobs
from ratoon.errors import EngineError
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import ChunkResult, SampleSpec, ScheduledChunk, SharedReads, StepPlan

GREEDY = SamplingParams(temperature=0)
PROMPT = tuple(int(token) for token in np.random.default_rng(4).integers(0, 61, 37))
TABLES = (tuple(range(1, 30)),)
OpenDecoder = Callable[..., tuple[Decoder, int]]
LoneStep = Callable[..., StepInputs]


@pytest.fixture
def decoder(tiny_llama: Path, open_decoder: OpenDecoder) -> Decoder:
    """Return a decoder over an empty pool."""
    return open_decoder(tiny_llama)[0]


@pytest.fixture
def runner(decoder: Decoder) -> ModelRunner:
    """Return a runner over it."""
    return ModelRunner(decoder, num_groups=1, block_size=16)


def _run(runner: ModelRunner, *chunks: ScheduledChunk) -> tuple[ChunkResult, ...]:
    result = runner.execute(StepPlan(3, chunks))
    assert result.step_id == 3
    assert [found.request_id for found in result.chunks] == [chunk.request_id for chunk in chunks]
    return result.chunks


def _prefill(params: SamplingParams = GREEDY, seed: int = 0, **fields: Any) -> ScheduledChunk:
    chunk = ScheduledChunk(1, PROMPT, 0, 0, TABLES, SampleSpec(params, seed, 0, PROMPT))
    return chunk._replace(**fields)


def _generate(runner: ModelRunner, params: SamplingParams, num_tokens: int) -> list[int]:
    """Generate token by token."""
    tokens = list(_run(runner, _prefill(params))[0].token_ids)
    while len(tokens) < num_tokens:
        position = len(PROMPT) + len(tokens) - 1
        sample = SampleSpec(params, 0, len(tokens), (), (tokens[-1],))
        chunk = ScheduledChunk(1, (tokens[-1],), position, position, TABLES, sample)
        tokens += _run(runner, chunk)[0].token_ids
    return tokens


def test_greedy_generation_follows_the_best_logit(
    runner: ModelRunner, decoder: Decoder, lone_step: LoneStep
) -> None:
    tokens = _generate(runner, GREEDY, 12)
    known = np.array([*PROMPT, *tokens], np.int32)
    logits = decoder.logits(decoder(known, lone_step(1, 0, len(known)), np.arange(len(known))))[0]
    assert logits.argmax(axis=1).tolist()[len(PROMPT) - 1 : -1] == tokens


def test_a_chunk_that_does_not_sample_writes_and_returns_nothing(runner: ModelRunner) -> None:
    whole = _run(runner, _prefill())[0]
    first = _prefill(token_ids=PROMPT[:20], sample=None)
    assert _run(runner, first)[0] == ChunkResult(1)
    rest = _prefill(token_ids=PROMPT[20:], first_position=20, write_from=20)
    assert _run(runner, rest)[0] == whole


def test_requests_that_read_blocks_together_are_named(tiny_llama: Path, open_decoder: OpenDecoder) -> None:
    def read_together(ops: Ops) -> tuple[SharedReads, ...]:
        runner = ModelRunner(open_decoder(tiny_llama, ops=ops)[0], num_groups=1, block_size=16)
        tokens = PROMPT * 4
        runner.execute(StepPlan(1, (_prefill(token_ids=tokens),)))
        last = len(tokens) - 1
        hit = _prefill(token_ids=tokens[-1:], first_position=last, write_from=last + 1)
        return runner.execute(StepPlan(2, (hit, hit._replace(request_id=7)))).shared_reads

    (found,) = read_together(NativeOps(1))
    assert (found.group, found.num_blocks, found.num_saved) == (0, 10, 10)
    assert sorted(found.request_ids) == [1, 7]
    assert read_together(ReferenceOps()) == ()


def test_a_full_hit_runs_one_token_and_writes_nothing(
    tiny_llama: Path, open_decoder: OpenDecoder, lone_step: LoneStep
) -> None:
    seen: list[bytes] = []
    runner = ModelRunner(
        open_decoder(tiny_llama)[0],
        num_groups=1,
        block_size=16,
        observe_logits=lambda request_id, position, logits: seen.append(logits),
    )
    last = len(PROMPT) - 1
    _run(runner, _prefill())
    hit = _prefill(token_ids=PROMPT[-1:], first_position=last, write_from=last + 1)
    _run(runner, hit)
    _run(runner, hit._replace(token_ids=(PROMPT[-1] ^ 1,)))  # would have overwritten the last position
    _run(runner, hit)
    assert seen[0] == seen[1] == seen[3] != seen[2]


def test_the_observer_sees_where_each_sampled_row_stands(
    tiny_llama: Path, open_decoder: OpenDecoder, lone_step: LoneStep
) -> None:
    decoder = open_decoder(tiny_llama)[0]
    seen: list[tuple[int, int, bytes]] = []
    runner = ModelRunner(decoder, num_groups=1, block_size=16, observe_logits=lambda *call: seen.append(call))
    _run(runner, _prefill(sample=None), _prefill(request_id=8))
    assert [(request_id, position) for request_id, position, _ in seen] == [(8, len(PROMPT) - 1)]
    token_ids = np.array(PROMPT, np.int32)
    hidden = decoder(token_ids, lone_step(1, 0, len(PROMPT)), np.array([len(PROMPT) - 1]))
    expected, _ = decoder.logits(hidden)
    assert seen[0][2] == expected[0].tobytes()


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(temperature=2.0),
        SamplingParams(temperature=1.0, repetition_penalty=1.3, frequency_penalty=0.7),
    ],
    ids=["greedy", "drawn", "penalised"],
)
@pytest.mark.parametrize("num_right", range(5))
def test_drafts_are_accepted_up_to_the_first_wrong_one(
    params: SamplingParams, num_right: int, runner: ModelRunner
) -> None:
    tokens = _generate(runner, params, 7)
    drafts = tokens[2:6]
    if num_right < 4:
        drafts[num_right] = (drafts[num_right] + 1) % 61
    first = len(PROMPT) + 1
    sample = SampleSpec(params, 0, 2, PROMPT, tuple(tokens[:2]))
    chunk = ScheduledChunk(2, (tokens[1], *drafts), first, first, TABLES, sample, num_drafts=4)
    result = _run(runner, chunk)[0]
    assert result.token_ids == tuple(tokens[2 : 3 + num_right])
    assert result.num_accepted_drafts == num_right


def test_what_was_counted_for_a_request_is_dropped_when_it_has_ended(runner: ModelRunner) -> None:
    params = SamplingParams(temperature=0, presence_penalty=2.0, logprobs=0)
    alone = _run(runner, _prefill(params))[0]
    told = SampleSpec(params, 0, 1, (), alone.token_ids)
    again = _prefill(sample=SampleSpec(params, 0, 0, PROMPT))
    assert _run(runner, _prefill(sample=told))[0].token_ids != alone.token_ids, "the penalty shows"
    assert runner.execute(StepPlan(1, (again,), ended=(1,))).chunks == (alone,)


def test_a_ban_until_min_tokens_ends_among_the_drafts(runner: ModelRunner) -> None:
    params = SamplingParams(temperature=0, min_tokens=3)
    free = _generate(runner, GREEDY, 4)
    sample = SampleSpec(params, 0, 0, banned_token_ids=(free[0], free[1], free[2], free[3]))
    banned = _run(runner, _prefill(params, sample=sample))[0].token_ids[0]
    assert banned != free[0]
    sample = sample._replace(num_generated=2)  # the first draft is the third token, the last that is banned
    drafts = _prefill(params, token_ids=(*PROMPT, banned, 0), sample=sample, num_drafts=2)
    first, second = _run(runner, drafts)[0].token_ids[:2]
    unbanned = _prefill(token_ids=(*PROMPT, banned), sample=SampleSpec(GREEDY, 0, 3))
    assert (first, second) == (banned, _run(runner, unbanned)[0].token_ids[0])


def test_logprobs_come_with_every_new_token(runner: ModelRunner) -> None:
    params = SamplingParams(temperature=0, logprobs=3)
    tokens = _generate(runner, GREEDY, 3)
    chunk = _prefill(params, token_ids=(*PROMPT, tokens[0], tokens[1] ^ 1), num_drafts=2)
    result = _run(runner, chunk)[0]
    assert result.token_ids == tuple(tokens[:2])
    assert [logprobs[0][0] for logprobs in result.logprobs] == tokens[:2]
    assert [len(logprobs) for logprobs in result.logprobs] == [3, 3]


def test_prompt_logprobs_cover_every_target_and_sampling_follows(
    runner: ModelRunner, decoder: Decoder, lone_step: LoneStep
) -> None:
    prompt = tuple(int(token) for token in np.random.default_rng(1).integers(0, 61, 2 * LOGIT_ROWS + 9))
    chunk = _prefill(token_ids=prompt, prompt_logprobs=2, prompt_targets=prompt[1:])
    plain, asked = _run(runner, _prefill(token_ids=prompt), chunk)
    token_ids = np.array(prompt, np.int32)
    logits = decoder.logits(decoder(token_ids, lone_step(1, 0, len(prompt)), np.arange(len(prompt))))[0]
    expected = [
        top_logprobs(row, int(row.argmax()), 2, target)
        for row, target in zip(logits[:-1], prompt[1:], strict=True)
    ]
    assert list(asked.prompt_logprobs) == expected
    assert asked.token_ids == plain.token_ids == (logits[-1].argmax(),)
    assert plain.prompt_logprobs == ()


def test_prompt_logprobs_of_a_chunk_within_the_prompt_need_no_sampling(runner: ModelRunner) -> None:
    chunk = _prefill(token_ids=PROMPT[:9], sample=None, prompt_logprobs=0, prompt_targets=PROMPT[1:10])
    result = _run(runner, chunk)[0]
    assert [logprobs[0][0] for logprobs in result.prompt_logprobs if logprobs] == list(PROMPT[1:10])
    assert result.token_ids == ()


class CountingDecoder(Decoder):
    """Notes how many rows of logits are computed at once."""

    def __init__(self, inner: Decoder) -> None:
        self.inner = inner
        self.shared_blocks = ()
        self.asked: list[int] = []

    def __call__(self, token_ids: Any, inputs: StepInputs, rows: Any, given: Any = ()) -> Floats:
        return self.inner(token_ids, inputs, rows, given)

    def logits(self, hidden: Floats) -> tuple[Floats, Ints]:
        self.asked.append(len(hidden))
        return self.inner.logits(hidden)


def test_logits_are_computed_for_the_rows_that_are_read_in_slices(decoder: Decoder) -> None:
    counting = CountingDecoder(decoder)
    runner = ModelRunner(counting, num_groups=1, block_size=16)
    _run(runner, _prefill(sample=None))
    assert counting.asked == []
    _run(runner, _prefill(), _prefill(sample=None), _prefill(num_drafts=2))
    assert counting.asked == [4]
    prompt = PROMPT * 3
    counting.asked.clear()
    _run(runner, _prefill(token_ids=prompt, prompt_logprobs=1, prompt_targets=prompt[1:]))
    assert counting.asked == [LOGIT_ROWS, len(prompt) - LOGIT_ROWS]


def test_a_request_samples_the_same_alone_and_in_company(runner: ModelRunner) -> None:
    params = SamplingParams(temperature=1.5, logprobs=5)
    alone = _run(runner, _prefill(params, seed=3))[0]
    others = [
        _prefill(params, seed=seed, token_ids=PROMPT[: 5 + seed], request_id=seed) for seed in range(7, 12)
    ]
    tables = [chunk._replace(block_tables=((30 + 3 * i, 31 + 3 * i),)) for i, chunk in enumerate(others)]
    assert _run(runner, *tables[:3], _prefill(params, seed=3), *tables[3:])[3] == alone


def test_logits_that_are_not_finite_fail_the_step(decoder: Decoder) -> None:
    class Broken(CountingDecoder):
        def logits(self, hidden: Floats) -> tuple[Floats, Ints]:
            logits, best = super().logits(hidden)
            return logits * np.float32(np.nan), best

    runner = ModelRunner(Broken(decoder), num_groups=1, block_size=16)
    with pytest.raises(EngineError, match="not finite"):
        _run(runner, _prefill())
