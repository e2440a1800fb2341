"""A model that is nothing but memory: what a step computes depends on every slot that it reads.

The value of a position is a digest of its input, its adapter, and the values in all the slots it sees, read
through the block tables of every group. Its input is a token, an integer, or an input row, which is one
number with a fraction; prompts mix them freely. A slot that holds another token, a stale value or nothing
changes everything after it, so a request whose output equals what it gets `Alone` was given exactly the right
blocks.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import count, groupby
from random import Random
from typing import Any, cast

import pytest

from ratoon.cache.invariants import check_invariants
from ratoon.cache.manager import CacheManager
from ratoon.draft.prompt_lookup import PromptLookup
from ratoon.draft.speculation import Speculation
from ratoon.engine.core import EngineCore
from ratoon.engine.prompt_parts import join_parts
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.finish import FinishReason
from ratoon.request.input_rows import InputRows, input_rows
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.delta import RequestDelta
from ratoon.sched.limits import Limits
from ratoon.sched.scheduler import Scheduler
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.step import ChunkResult, Logprobs, ScheduledChunk, StepPlan, StepResult
from ratoon.text.tokenizer import Tokenizer

VOCAB_SIZE = 29
EOS = 0
BLOCK_SIZE = 4
ROOT = bytes(32)
NO_TOKENIZER = cast(Tokenizer, None)  # no part is a text

Groups = tuple[CacheGroupSpec, ...]
Prompt = Sequence[int | float]


def parts_of(prompt: Prompt) -> Iterator[list[int] | InputRows]:
    """Each run of tokens, and each run of input rows, is a part."""
    for is_token, items in groupby(prompt, lambda item: isinstance(item, int)):
        run = list(items)
        if is_token:
            yield [int(token) for token in run]
        else:
            yield input_rows("F32", (len(run), 1), struct.pack(f"<{len(run)}f", *run), width=1)


def inputs_of(chunk: ScheduledChunk) -> list[int | float]:
    """What the runner is given at each of the chunk's positions."""
    inputs: list[int | float] = list(chunk.token_ids)
    for rows in chunk.input_rows:
        inputs[rows.offset : rows.offset + rows.num_rows] = struct.unpack(f"<{rows.num_rows}f", rows.data)
    assert len(inputs) == len(chunk.token_ids), "rows replace tokens, one for one"
    return inputs


def sampled_token(value: int, seed: int, num_generated: int, banned: Sequence[int]) -> int:
    allowed = [token for token in range(VOCAB_SIZE) if token not in banned]
    return allowed[hash((value, seed, num_generated)) % len(allowed)]


def prompt_logprob(value: int, num_best: int, target: int | None) -> Logprobs | None:
    return None if target is None else ((target, -float(hash((value, num_best, target)) % 1000)),)


def append_value(values: list[int], token: float, groups: Groups, adapter: bytes | None) -> None:
    """Add the value of the next position, as the runner finds it in correct memory."""
    position = len(values)
    seen = tuple(tuple(values[group.first_visible(position) :]) for group in groups)
    values.append(hash((position, token, adapter, seen)))


class Alone:
    """What a request gets with no cache, no batch, no chunks and no preemption."""

    def __init__(self, request: Request, prompt: Prompt, groups: Groups, max_model_len: int) -> None:
        params, adapter = request.params, request.chain.extra_keys.adapter
        stop_ids = set(params.stop_token_ids) | (set() if params.ignore_eos else {EOS})
        limit = len(prompt) + (params.max_tokens or max_model_len)
        values: list[int] = []
        for token in prompt:
            append_value(values, token, groups, adapter)
        targets = [token if isinstance(token, int) else None for token in prompt]
        pairs = zip(values, targets[1:], strict=False)
        num_best = params.prompt_logprobs or 0
        self.prompt_logprobs = (None, *(prompt_logprob(value, num_best, token) for value, token in pairs))
        self.output: list[int] = []
        while not stop_ids.intersection(self.output[-1:]) and len(values) < min(limit, max_model_len):
            banned = sorted(stop_ids) if len(self.output) < params.min_tokens else ()
            token = sampled_token(values[-1], request.seed, len(self.output), banned)
            self.output.append(token)
            append_value(values, token, groups, adapter)


class MemoryRunner:
    """Set `failure`, an `OSError`, and the next step raises it after spoiling every slot it was to write."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.is_committed: Callable[[int], bool] = lambda block_id: False
        self.memory: dict[tuple[int, int, int], tuple[int, int]] = {}  # group, block, offset: position, value
        self.failure: BaseException | None = None
        self.plans: list[StepPlan] = []

    def execute(self, plan: StepPlan) -> StepResult:
        self.plans.append(plan)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            for chunk in plan.chunks:
                for position in range(chunk.write_from, chunk.first_position + len(chunk.token_ids)):
                    self.write(chunk, position, -1)
            raise failure
        written: set[tuple[int, int, int]] = set()
        values: dict[tuple[int, int], int] = {}
        # By position, because each layer writes everything before any attention of that layer reads.
        for position, index in sorted(
            (chunk.first_position + i, index)
            for index, chunk in enumerate(plan.chunks)
            for i in range(len(chunk.token_ids))
        ):
            chunk = plan.chunks[index]
            value = self.value(chunk, position)
            values[index, position] = value
            if position >= chunk.write_from:
                slots = self.write(chunk, position, value)
                assert written.isdisjoint(slots), "two chunks write one slot"
                written |= slots
            else:
                assert all(self.memory[slot] == (position, value) for slot in self.slots(chunk, position))
        return StepResult(
            plan.step_id, tuple(self.result(chunk, i, values) for i, chunk in enumerate(plan.chunks))
        )

    def slots(self, chunk: ScheduledChunk, position: int) -> set[tuple[int, int, int]]:
        logical, offset = divmod(position, BLOCK_SIZE)
        slots = {(g, table[logical], offset) for g, table in enumerate(chunk.block_tables)}
        assert all(block_id for _, block_id, _ in slots), "a slot in the null block"
        return slots

    def write(self, chunk: ScheduledChunk, position: int, value: int) -> set[tuple[int, int, int]]:
        slots = self.slots(chunk, position)
        assert not any(self.is_committed(block_id) for _, block_id, _ in slots), (
            "others rely on what is there"
        )
        self.memory.update(dict.fromkeys(slots, (position, value)))
        return slots

    def value(self, chunk: ScheduledChunk, position: int) -> int:
        seen = []
        for g, group in enumerate(self.groups):
            table = chunk.block_tables[g]
            found = [
                self.memory[g, table[i // BLOCK_SIZE], i % BLOCK_SIZE]
                for i in range(group.first_visible(position), position)
            ]
            assert [i for i, _ in found] == list(range(group.first_visible(position), position))
            seen.append(tuple(value for _, value in found))
        token = inputs_of(chunk)[position - chunk.first_position]
        return hash((position, token, chunk.adapter, tuple(seen)))

    def result(self, chunk: ScheduledChunk, index: int, values: dict[tuple[int, int], int]) -> ChunkResult:
        prompt_logprobs = tuple(
            prompt_logprob(values[index, position], chunk.prompt_logprobs or 0, target)
            for position, target in enumerate(chunk.prompt_targets, chunk.first_position)
        )
        spec = chunk.sample
        if spec is None:
            return ChunkResult(chunk.request_id, prompt_logprobs=prompt_logprobs)
        tokens: list[int] = []
        first = len(chunk.token_ids) - chunk.num_drafts
        for place in range(first, len(chunk.token_ids) + 1):
            if tokens != list(chunk.token_ids[first:place]):
                break
            now = spec.after(tokens)
            value = values[index, chunk.first_position + place - 1]
            tokens.append(sampled_token(value, now.seed, now.num_generated, now.banned_token_ids))
        logprobs = () if spec.params.logprobs is None else tuple(((token, -1.0),) for token in tokens)
        return ChunkResult(chunk.request_id, tuple(tokens), len(tokens) - 1, logprobs, prompt_logprobs)


class HostileSpeculation(Speculation):
    """Guesses right for a while, then wrong, and often more than anybody may verify."""

    def __init__(self, random: Random, alone: Callable[[Request], Alone]) -> None:
        super().__init__(PromptLookup(), 1)
        self.random = random
        self.alone = alone

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        return {request.id: self.guess(request) for request in requests}

    def guess(self, request: Request) -> list[int]:
        random = self.random
        truth = self.alone(request).output[request.num_generated :]
        right = truth[: random.choice([0, 0, 1, 2, 5, 40])]
        return right + random.choices(range(VOCAB_SIZE), k=random.choice([0, 0, 1, 3, 40]))


class Bench:
    """An engine on a `MemoryRunner`, with everything that a test wants to ask afterwards."""

    def __init__(
        self,
        *,
        num_blocks: int = 65,
        windows: Sequence[int | None] = (None,),
        share_in_flight: bool = True,
        enable_prefix_caching: bool = True,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 512,
        max_model_len: int = 200,
        speculation: Speculation | None = None,
        hostile_seed: float | None = None,
    ) -> None:
        self.groups = tuple(CacheGroupSpec(window) for window in windows)
        self.max_model_len = max_model_len
        self.cache = CacheManager(
            self.groups,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            share_in_flight=share_in_flight,
            enable_prefix_caching=enable_prefix_caching,
        )
        limits = Limits(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
        )
        self.scheduler = Scheduler(self.cache, limits, eos_token_ids=(EOS,))
        self.runner = MemoryRunner(self.groups)
        self.runner.is_committed = lambda block_id: self.cache.pool.block_hashes[block_id] is not None
        if hostile_seed is not None:
            speculation = HostileSpeculation(Random(hostile_seed), self.alone)
        ticks = count()
        self.core = EngineCore(self.scheduler, self.runner, speculation, clock=lambda: float(next(ticks)))
        self.requests: dict[int, Request] = {}
        self.prompts: dict[int, tuple[int | float, ...]] = {}
        self.answers: dict[int, Alone] = {}
        self.deltas: dict[int, list[RequestDelta]] = {}

    def request(
        self, prompt: Prompt, *, salt: str | None = None, adapter: bytes | None = None, **settings: Any
    ) -> Request:
        """Make a request; settings are fields of `Request` or of `SamplingParams`."""
        fields = {
            name: settings.pop(name) for name in ("priority", "read_cache", "write_cache") if name in settings
        }
        settings = {"max_tokens": 4, "ignore_eos": True, **settings}
        tokens = join_parts(list(parts_of(prompt)), NO_TOKENIZER)
        extra_keys = ExtraKeys(adapter=adapter, salt=salt, media=tokens.media)
        chain = HashChain(ROOT, BLOCK_SIZE, extra_keys, tokens.ids)
        params, seed = SamplingParams(**settings), settings.get("seed") or 7
        return Request(len(self.requests), chain, params, seed, rows=tokens.input_rows, **fields)

    def add(self, prompt: Prompt, **settings: Any) -> Request:
        request = self.request(prompt, **settings)
        self.core.add(request)
        self.requests[request.id] = request
        self.prompts[request.id] = tuple(prompt)
        self.deltas[request.id] = []
        return request

    def cancel(self, request: Request) -> None:
        delta = self.core.cancel(request.id)
        if delta is not None:
            self.deltas[request.id].append(delta)

    def step(self) -> tuple[RequestDelta, ...]:
        deltas = self.core.step()
        for delta in deltas:
            self.deltas[delta.request_id].append(delta)
            if delta.error is not None and not isinstance(delta.error.__cause__, OSError):
                raise delta.error  # the runner found wrong memory
        check_invariants(self.cache)
        return deltas

    def run(self) -> None:
        """Step until nothing is left to do, then check every request."""
        for _ in range(10_000):
            if not self.core.has_work:
                break
            self.step()
        assert not self.core.has_work, "somebody is stuck"
        self.check()

    def output(self, request: Request) -> list[int]:
        return [token for delta in self.deltas[request.id] for token in delta.token_ids]

    def output_of(self, prompt: Prompt, **settings: Any) -> list[int]:
        """Run one request and return its output."""
        request = self.add(prompt, **settings)
        self.run()
        return self.output(request)

    def alone(self, request: Request) -> Alone:
        if request.id not in self.answers:
            prompt = self.prompts[request.id]
            self.answers[request.id] = Alone(request, prompt, self.groups, self.max_model_len)
        return self.answers[request.id]

    def last(self, request: Request) -> RequestDelta:
        return self.deltas[request.id][-1]

    @property
    def computed_tokens(self) -> int:
        return sum(plan.num_tokens for plan in self.runner.plans)

    def check(self) -> None:
        """Check what must hold once every request has ended."""
        for request in self.requests.values():
            self.check_request(request)
        usages = [
            self.last(request).usage
            for request in self.requests.values()
            if request.first_scheduled_s is not None
        ]
        assert self.cache.stats.num_query_tokens == sum(usage.prompt_tokens for usage in usages if usage)
        assert self.cache.stats.num_hit_tokens == sum(usage.cached_tokens for usage in usages if usage)
        drafts = self.core.draft_stats
        assert drafts.num_drafts == sum(request.num_drafts for request in self.requests.values())
        accepted = sum(request.num_accepted_drafts for request in self.requests.values())
        assert drafts.num_accepted_drafts == accepted == sum(drafts.num_accepted_by_position)
        assert self.cache.num_free_blocks == self.cache.num_usable_blocks
        assert not self.cache.requests

    def check_request(self, request: Request) -> None:
        *others, last = self.deltas[request.id]
        assert all(delta.token_ids and delta.finish_reason is None for delta in others)
        alone = self.alone(request)
        output = self.output(request)
        if last.finish_reason in (FinishReason.STOP, FinishReason.LENGTH):
            assert output == alone.output
        else:
            assert output == alone.output[: len(output)]
        if request.params.logprobs is not None:
            logprobs = [entry for delta in self.deltas[request.id] for entry in delta.logprobs]
            assert [entry[0][0] for entry in logprobs] == output
        if request.params.prompt_logprobs is not None and output:
            assert self.deltas[request.id][0].prompt_logprobs == alone.prompt_logprobs
        assert last.usage is not None
        assert last.usage.completion_tokens == len(output)
        assert 0 <= last.usage.cached_tokens < last.usage.prompt_tokens
        assert last.timings is not None
        moments = (
            last.timings.arrival_s,
            last.timings.first_scheduled_s,
            last.timings.first_token_s,
            last.timings.finished_s,
        )
        happened = [moment for moment in moments if moment is not None]
        assert happened == sorted(happened)


@pytest.fixture(scope="session")
def make_bench() -> Callable[..., Bench]:
    return Bench
