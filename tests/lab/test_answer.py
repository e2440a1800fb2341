from dataclasses import replace

import pytest

from ratoon.lab.answer import Answer


@pytest.fixture
def answer() -> Answer:
    return Answer(
        sent_at_s=100.0,
        arrivals_s=(0.5, 0.625, 0.875),
        end_s=1.0,
        prompt_tokens=20,
        completion_tokens=5,
        cached_tokens=16,
        output_ids=(1, 2, 3, 4, 5),
        text_digest="ab",
    )


def test_the_clocks_of_a_known_answer(answer: Answer) -> None:
    assert answer.ttft_s == 0.5
    assert answer.itl_s == [0.125, 0.25]
    assert answer.tpot_s == 0.375 / 4  # five tokens came in three events
    assert answer.finished_at_s == 101.0


def test_one_token_has_no_time_per_token_after_it(answer: Answer) -> None:
    single = replace(answer, arrivals_s=(0.5,), completion_tokens=1)

    assert single.tpot_s is None
    assert single.itl_s == []


def test_an_answer_survives_json(answer: Answer) -> None:
    assert Answer.from_json(answer.to_json()) == answer
    failed = Answer(sent_at_s=1.0, error="gone")
    assert Answer.from_json(failed.to_json()) == failed
