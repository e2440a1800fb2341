"""What is special about input rows, on the real model: they have the bits of the tokens whose rows they are,
and a cache of their own. Random cases with rows among others are in `test_exactness.py`.
"""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.engine.build import LoadedModel
from ratoon.engine.prompt_parts import join_parts, read_part
from ratoon.request.sampling_params import SamplingParams
from tests.engine.exactness import SMOLLM2, Answered, Ask, Bench, ColdAnswers, load, table_rows

GREEDY = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def model(smollm2_path: Path) -> LoadedModel:
    return load(SMOLLM2, smollm2_path, threads=1)


def ask(model: LoadedModel, *parts: Any) -> Ask:
    read = [read_part(part, model.spec.hidden_size) for part in parts]
    return Ask(join_parts(read, model.tokenizer), GREEDY)


def cold(model: LoadedModel, *parts: Any) -> Answered:
    return ColdAnswers(model).of(ask(model, *parts))


def random_rows(model: LoadedModel, num_rows: int) -> Any:
    rng = np.random.default_rng(num_rows)
    return rng.normal(0, 0.1, (num_rows, model.spec.hidden_size)).astype(np.float32)


def test_rows_of_the_token_table_give_the_bits_of_its_tokens_but_never_its_blocks(model: LoadedModel) -> None:
    rng = random.Random(4)
    ids = [rng.randrange(model.spec.vocab_size) for _ in range(50)]
    rows = table_rows(model, ids)
    as_tokens = cold(model, ids)
    for parts in ((rows,), (ids[:20], rows[20:]), (rows[:1], ids[1:49], rows[49:]), (rows[:16], rows[16:])):
        assert cold(model, *parts).has_bits_of(as_tokens)

    bench = Bench(model)
    answers = [
        bench.run([ask(model, *parts)])[0]
        for parts in ((ids,), (rows,), (ids,), (rows,), (ids[:32], rows[32:]))
    ]
    assert all(answered.has_bits_of(as_tokens) for answered in answers)
    assert [answered.usage.cached_tokens for answered in answers] == [0, 0, 48, 48, 32]


def test_the_same_part_hits_and_a_full_hit_computes_one_row(model: LoadedModel) -> None:
    rows = random_rows(model, 48)
    bench = Bench(model)
    first, again, longer, cut = [
        bench.run([ask(model, *parts)])[0] for parts in ((rows,), (rows.copy(),), (rows, [7]), (rows[:47],))
    ]
    assert first.has_bits_of(again)
    assert [answered.usage.cached_tokens for answered in (first, again, longer, cut)] == [0, 47, 48, 0]


def test_equal_parts_that_arrive_together_are_computed_once(model: LoadedModel) -> None:
    rows = random_rows(model, 80)
    asks = [ask(model, [1, 2, 3], rows, [number]) for number in range(8)]
    expected = [ColdAnswers(model).of(each) for each in asks]
    shared = Bench(model, max_num_batched_tokens=33).run(asks)
    assert sum(answered.usage.computed_tokens for answered in shared) == 84 + 7 * 4
    assert all(a.has_bits_of(b) for a, b in zip(shared, expected, strict=True))
