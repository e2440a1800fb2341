from typing import Any

import pytest
from pydantic import ValidationError

from ratoon.server.completion_body import CompletionBody


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": "hello", **fields})


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("text", ["text"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_a_prompt_is_text_or_token_ids_or_a_list_of_either(prompt: object, prompts: object) -> None:
    assert completion(prompt=prompt).prompt == prompts


@pytest.mark.parametrize(
    "prompt", [None, 3, {}, [], [[]], [True], [1, "a"], [[1], "a"], [[1.0]], "\ud800", ["\ud800"], [["a"]]]
)
def test_any_other_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(ValidationError, match="prompt"):
        completion(prompt=prompt)


def test_output_is_limited_to_16_tokens_and_may_be_none_with_echo() -> None:
    assert completion().token_limit() == 16
    assert completion(max_tokens=3).token_limit() == 3
    assert completion(max_tokens=0, echo=True).token_limit() == 0
    assert completion(logprobs=0).num_logprobs() == 0
