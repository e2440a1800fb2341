"""The promise for prompts of parts, on the real model with the native ops: where rows stand, a hit changes
nothing but the time.

Prompts are cut out of a few documents of tokens and rows; some rows are those of the token table, some like
no token's. Requests run together, on a warm cache, in chunks of any size and in pools that are too small, and
their logits are compared as bytes with those of the same request alone on a cold one.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.device.ops.protocol import Floats
from ratoon.engine.build import LoadedModel, build_core, load_model, open_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.prompt_parts import Media, join_parts, read_part
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.request.finish import Usage
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams

POOL_BLOCKS = 120
BLOCK = 16
LONG_ANSWER = 20
NUM_CASES = 40
GREEDY = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)


@dataclass(frozen=True, eq=False)
class Ask:
    """Parts of a prompt, and how it is answered."""

    parts: tuple[Any, ...]
    params: SamplingParams = GREEDY


@dataclass(frozen=True)
class Answered:
    token_ids: list[int]
    logits: list[bytes]
    usage: Usage


class Bench:
    """Runs batches on one engine and keeps what every request's positions gave."""

    def __init__(self, model: LoadedModel, **settings: object) -> None:
        self._model = model
        self._logits: dict[int, list[bytes]] = {}
        config = replace(model.config, **settings)  # type: ignore[arg-type]
        self.core = build_core(model, config, observe_logits=self._observe)

    def run(self, asks: Iterable[Ask]) -> list[Answered]:
        requests = [self._request(ask) for ask in asks]
        for request in requests:
            self.core.add(request)
        usages = {}
        while self.core.has_work:
            for delta in self.core.step():
                assert delta.error is None, delta.error
                if delta.usage is not None:
                    usages[delta.request_id] = delta.usage
        return [
            Answered(
                list(request.chain.tokens[request.num_prompt_tokens :]),
                self._logits[request.id],
                usages[request.id],
            )
            for request in requests
        ]

    def _request(self, ask: Ask) -> Request:
        width = self._model.spec.hidden_size
        prompt = join_parts([read_part(part, width) for part in ask.parts], self._model.tokenizer)
        chain = self._model.chain(prompt.ids, ExtraKeys(media=prompt.media))
        number = len(self._logits)
        self._logits[number] = []
        return Request(number, chain, ask.params, seed=5, rows=prompt.input_rows)

    def _observe(self, request_id: int, position: int, logits: bytes) -> None:
        self._logits[request_id].append(logits)


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> LoadedModel:
    page_bytes = open_model(smollm2_path).budget(EngineConfig()).page_bytes
    return load_model(
        smollm2_path, EngineConfig(ops="native", threads=1, kv_cache_bytes=(POOL_BLOCKS + 1) * page_bytes)
    )


def table_rows(model: LoadedModel, token_ids: Sequence[int]) -> Floats:
    """The rows that the model looks up for tokens, ready for the first layer."""
    return model.decoder._embedding(np.array(token_ids, np.int32))


def cold(model: LoadedModel, *parts: Any, params: SamplingParams = GREEDY) -> Answered:
    bench = Bench(model, max_num_batched_tokens=1024, enable_prefix_caching=False)
    return bench.run([Ask(parts, params)])[0]


def same_bits(one: Answered, other: Answered) -> bool:
    return one.token_ids == other.token_ids and one.logits == other.logits


def random_documents(model: LoadedModel, rng: random.Random) -> list[list[Any]]:
    """Each is a list of parts, of 1 to 40 positions each."""
    numpy_rng = np.random.default_rng(rng.randrange(2**32))

    def part() -> Any:
        length = rng.choice((1, 2, 7, 16, 17, rng.randint(1, 40)))
        ids = [rng.randrange(model.spec.vocab_size) for _ in range(length)]
        made_up = numpy_rng.normal(0, 0.1, (length, model.spec.hidden_size)).astype(np.float32)
        return rng.choice(
            (
                ids,
                ids,
                table_rows(model, ids),
                made_up,
                made_up.astype(np.float16),
                Media(rng.randbytes(8), made_up),
            )
        )

    return [[part() for _ in range(7)] for _ in range(4)]


def random_ask(rng: random.Random, documents: Sequence[Sequence[Any]]) -> Ask:
    """Take the beginning of a document, or a document with one part from elsewhere."""
    parts = list(rng.choice(documents))[: rng.randint(1, 7)]
    if rng.random() < 0.3:
        parts[rng.randrange(len(parts))] = rng.choice(rng.choice(documents))
    params = replace(
        GREEDY,
        max_tokens=rng.choice((1, 2, LONG_ANSWER)),
        temperature=rng.choice((0, 1)),
        repetition_penalty=rng.choice((1, 1.2)),
    )
    return Ask(tuple(parts), params)


def test_logits_are_those_of_the_request_alone_on_a_cold_cache(model: LoadedModel) -> None:
    rng = random.Random(3)
    documents = random_documents(model, rng)
    asks = [random_ask(rng, documents) for _ in range(30)]
    expected = {ask: cold(model, *ask.parts, params=ask.params) for ask in asks}
    num_cases = num_hits = num_preemptions = 0
    while num_cases < NUM_CASES:
        chosen, num_blocks = rng.choices(asks, k=6), POOL_BLOCKS
        if rng.random() < 0.5:
            chosen = rng.sample([ask for ask in asks if ask.params.max_tokens == LONG_ANSWER], k=3)
            num_blocks = sum(expected[ask].usage.prompt_tokens // BLOCK + 1 for ask in chosen)
        bench = Bench(
            model,
            max_num_batched_tokens=rng.choice((5, 16, 33, 256)),
            share_in_flight=rng.random() < 0.7,
            kv_cache_bytes=(num_blocks + 1) * model.budget.page_bytes,
        )
        for _ in range(5):
            num_cases += 1
            batch = rng.sample(chosen, k=rng.randint(3, len(chosen)))
            for ask, answered in zip(batch, bench.run(batch), strict=True):
                assert same_bits(answered, expected[ask]), f"case {num_cases}, {answered.usage}"
        num_hits += bench.core.scheduler.cache.stats.num_hit_tokens
        num_preemptions += bench.core.scheduler.num_preemptions
        assert bench.core.scheduler.cache.num_free_blocks == num_blocks
    assert num_hits > 0, "the cases are to reuse blocks"
    assert num_preemptions > 0, "the cases are to preempt"


def test_rows_of_the_token_table_give_the_bits_of_its_tokens_but_never_its_blocks(model: LoadedModel) -> None:
    rng = random.Random(4)
    ids = [rng.randrange(model.spec.vocab_size) for _ in range(50)]
    rows = table_rows(model, ids)
    as_tokens = cold(model, ids)
    for parts in ((rows,), (ids[:20], rows[20:]), (rows[:1], ids[1:49], rows[49:]), (rows[:16], rows[16:])):
        assert same_bits(cold(model, *parts), as_tokens)

    bench = Bench(model)
    answers = [
        bench.run([Ask(parts)])[0] for parts in ((ids,), (rows,), (ids,), (rows,), (ids[:32], rows[32:]))
    ]
    assert all(same_bits(answered, as_tokens) for answered in answers)
    assert [answered.usage.cached_tokens for answered in answers] == [0, 0, 48, 48, 32]


def test_the_same_part_hits_and_a_full_hit_computes_one_row(model: LoadedModel) -> None:
    rows = np.random.default_rng(5).normal(0, 0.1, (48, model.spec.hidden_size)).astype(np.float32)
    bench = Bench(model)
    first, again, longer, cut = [
        bench.run([Ask(parts)])[0] for parts in ((rows,), (rows.copy(),), (rows, [7]), (rows[:47],))
    ]
    assert same_bits(first, again)
    assert [answered.usage.cached_tokens for answered in (first, again, longer, cut)] == [0, 47, 48, 0]


def test_equal_parts_that_arrive_together_are_computed_once(model: LoadedModel) -> None:
    rows = np.random.default_rng(6).normal(0, 0.1, (80, model.spec.hidden_size)).astype(np.float32)
    asks = [Ask(([1, 2, 3], rows, [number])) for number in range(8)]
    shared = Bench(model, max_num_batched_tokens=33).run(asks)
    assert sum(answered.usage.computed_tokens for answered in shared) == 84 + 7 * 4
    assert all(
        same_bits(answered, cold(model, *ask.parts)) for ask, answered in zip(asks, shared, strict=True)
    )
