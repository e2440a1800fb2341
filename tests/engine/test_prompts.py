"""One prompt or several, told apart by what they are made of."""

from typing import Any

import numpy as np
import pytest

from ratoon.engine.prompts import is_conversation, is_prompt, listed, one_for_each
from ratoon.errors import InvalidParameterError
from ratoon.request.sampling_params import SamplingParams

MESSAGE = {"role": "user", "content": "Hi"}
GREEDY = SamplingParams(temperature=0)


@pytest.mark.parametrize("prompt", ["", "text", [1, 2], (1, 2), range(3), list(np.arange(3))])
def test_a_text_or_token_ids_are_one_prompt(prompt: object) -> None:
    assert is_prompt(prompt)


@pytest.mark.parametrize(
    "other",
    [None, 7, b"text", bytearray(b"text"), memoryview(b"text"), ["text"], [1, "two"], [1, 2.0], [1.0], {1}],
)
def test_nothing_else_is_a_prompt(other: object) -> None:
    assert not is_prompt(other)


@pytest.mark.parametrize(
    "one", ["text", [1, 2], b"no prompt", memoryview(b"none"), 7, None, {"prompt": "text"}]
)
def test_what_is_no_list_of_prompts_is_listed_as_one(one: object) -> None:
    assert listed(one, is_prompt) == [one]


@pytest.mark.parametrize("several", [[], ["a", "b"], ("a", [1]), [[1, 2], [3]], [1, "two"]])
def test_several_prompts_are_listed_as_they_are(several: object) -> None:
    assert listed(several, is_prompt) is several


def test_messages_are_one_conversation_and_lists_of_them_several() -> None:
    assert listed([MESSAGE, MESSAGE], is_conversation) == [[MESSAGE, MESSAGE]]
    assert listed([[MESSAGE], [MESSAGE]], is_conversation) == [[MESSAGE], [MESSAGE]]


def test_one_set_of_parameters_holds_for_all_prompts() -> None:
    assert one_for_each(None, 2) == [SamplingParams()] * 2
    assert one_for_each(GREEDY, 2) == [GREEDY] * 2
    assert one_for_each([GREEDY, SamplingParams()], 2) == [GREEDY, SamplingParams()]


@pytest.mark.parametrize("params", [{"max_tokens": 2}, [{"max_tokens": 2}], [GREEDY, None], 3, "greedy"])
def test_what_are_no_parameters_is_refused(params: Any) -> None:
    with pytest.raises(InvalidParameterError, match="params must be SamplingParams"):
        one_for_each(params, 1)
