from typing import Any

import numpy as np
import pytest

from ratoon.device.sampling.penalties import TokenCounts, adjust
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import SampleSpec

LOGITS = np.array([2.0, -2.0, 0.5, 4.0, -1.0], np.float32)


def _adjusted(
    *, prompt: tuple[int, ...] = (), output: tuple[int, ...] = (), banned: tuple[int, ...] = (), **params: Any
) -> list[float]:
    before = LOGITS.copy()
    counts = TokenCounts()
    counts.add(prompt, output[:1])
    counts.add((), output[1:])
    spec = SampleSpec(SamplingParams(**params), 0, len(output), banned_token_ids=banned)
    adjusted = adjust(LOGITS, spec, counts)
    assert LOGITS.tobytes() == before.tobytes(), "the row itself stays"
    return [float(x) for x in adjusted]


def test_parameters_that_ask_for_nothing_cost_nothing() -> None:
    assert adjust(LOGITS, SampleSpec(SamplingParams(), 0, 3), TokenCounts()) is LOGITS


def test_repetition_divides_positive_and_multiplies_negative_logits_of_prompt_and_output() -> None:
    assert _adjusted(prompt=(0, 1, 1), output=(3, 3), repetition_penalty=2.0) == [1.0, -4.0, 0.5, 2.0, -1.0]


def test_presence_counts_once_and_frequency_every_time_in_the_output_alone() -> None:
    assert _adjusted(prompt=(0,), output=(3, 1, 3), presence_penalty=0.5) == [2.0, -2.5, 0.5, 3.5, -1.0]
    assert _adjusted(prompt=(0,), output=(3, 1, 3), frequency_penalty=0.25) == [2.0, -2.25, 0.5, 3.5, -1.0]
    both = _adjusted(output=(3, 1, 3), presence_penalty=0.5, frequency_penalty=0.25)
    assert both == [2.0, -2.75, 0.5, 3.0, -1.0]


def test_penalties_without_a_history_change_nothing() -> None:
    assert _adjusted(presence_penalty=1.0, frequency_penalty=1.0, repetition_penalty=1.5) == LOGITS.tolist()


def test_a_bias_is_added_before_the_penalties() -> None:
    found = _adjusted(output=(1,), repetition_penalty=2.0, logit_bias={1: 3.0, 4: -1.5})
    assert found == [2.0, 0.5, 0.5, 4.0, -2.5]


def test_a_ban_is_stronger_than_any_bias() -> None:
    assert _adjusted(banned=(3, 0), logit_bias={3: 100.0}) == [-np.inf, -2.0, 0.5, -np.inf, -1.0]


@pytest.mark.parametrize("penalty", ["presence_penalty", "frequency_penalty"])
def test_negative_penalties_encourage(penalty: str) -> None:
    params: dict[str, Any] = {penalty: -1.0}
    assert _adjusted(output=(2,), **params)[2] == 1.5


def test_drafts_count_for_the_rows_after_them_and_for_no_other() -> None:
    params = SamplingParams(repetition_penalty=2.0, presence_penalty=0.5, frequency_penalty=0.25)
    counts = TokenCounts()
    counts.add((0, 3), (3,))
    before = adjust(LOGITS, SampleSpec(params, 0, 1), counts).tobytes()

    with_drafts = adjust(LOGITS, SampleSpec(params, 0, 4, draft_token_ids=(2, 3, 2)), counts)

    known = TokenCounts()
    known.add((0, 3), (3, 2, 3, 2))
    assert with_drafts.tobytes() == adjust(LOGITS, SampleSpec(params, 0, 4), known).tobytes()
    assert adjust(LOGITS, SampleSpec(params, 0, 1), counts).tobytes() == before
    assert before != with_drafts.tobytes()
