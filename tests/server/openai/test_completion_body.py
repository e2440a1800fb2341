from typing import Any

import pytest
from pydantic import ValidationError

from ratoon.server.openai.completions import CompletionBody
from ratoon.server.openai.prompts import EmbedsPart

TEXT = {"type": "text", "text": "text"}
IDS = {"type": "token_ids", "token_ids": [1, 2]}
ROWS = {"type": "prompt_embeds", "data": "AAAA"}
EMBEDS = EmbedsPart(type="prompt_embeds", data="AAAA")


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": "hello", **fields})


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("text", [["text"]]),
        ("", [[""]]),
        (["a", "b"], [["a"], ["b"]]),
        ([1, 2, 3], [[[1, 2, 3]]]),
        ([[1], [2, 3]], [[[1]], [[2, 3]]]),
        ([TEXT, IDS, ROWS], [["text", [1, 2], EMBEDS]]),
        ([[ROWS], "text", [3], [TEXT, ROWS]], [[EMBEDS], ["text"], [[3]], ["text", EMBEDS]]),
    ],
)
def test_a_prompt_is_text_or_token_ids_or_parts_or_a_list_of_these(prompt: object, prompts: object) -> None:
    assert completion(prompt=prompt).prompts() == prompts


@pytest.mark.parametrize(
    "prompt",
    [
        *(None, 3, {}, [], [[]], [True], [1, "a"], [[1.0]], "\ud800", ["\ud800"], [["a"]]),
        *(TEXT, [TEXT, "text"], [TEXT, 7], [[TEXT], TEXT], [{"type": "image"}], [{"text": "no type"}]),
        *([{**TEXT, "more": 1}], [{"type": "token_ids", "token_ids": [1.5]}], [{**ROWS, "data": b"bytes"}]),
        [{**TEXT, "text": "\ud800"}],
    ],
)
def test_any_other_prompt_is_refused(prompt: object) -> None:
    with pytest.raises(ValidationError, match="prompt"):
        completion(prompt=prompt)


def test_output_is_limited_to_16_tokens_and_may_be_none_with_echo() -> None:
    assert completion().token_limit() == 16
    assert completion(max_tokens=3).token_limit() == 3
    assert completion(max_tokens=0, echo=True).token_limit() == 0
    assert completion(logprobs=0).num_logprobs() == 0


def test_prompt_embeds_are_answered_before_prompts() -> None:
    assert completion(prompt="text", prompt_embeds="AAAA").prompts() == [[EMBEDS], ["text"]]
    assert completion(prompt=["a", ""], prompt_embeds=["AAAA"] * 2).prompts() == [
        [EMBEDS],
        [EMBEDS],
        ["a"],
        [""],
    ]


@pytest.mark.parametrize("nothing", [{"prompt": ""}, {"prompt": None}, {}])
def test_beside_prompt_embeds_an_empty_prompt_is_none(nothing: dict[str, object]) -> None:
    body = CompletionBody.model_validate({"prompt_embeds": "AAAA", **nothing})
    assert body.prompts() == [[EMBEDS]]


@pytest.mark.parametrize("embeds", [{"prompt_embeds": "AAAA"}, {"prompt": [TEXT, ROWS]}])
def test_what_has_no_text_cannot_be_echoed(embeds: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="echo is not possible with prompt embeddings"):
        completion(**embeds, echo=True)
    assert completion(prompt=[TEXT, IDS], echo=True).echo


@pytest.mark.parametrize(
    "many", [{"prompt": [TEXT] * 1025}, {"prompt": [[TEXT, IDS]] * 513}, {"prompt_embeds": ["AAAA"] * 1025}]
)
def test_parts_are_limited(many: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="at most 1024"):
        completion(**many)
    assert len(completion(prompt=[TEXT] * 1024).prompts()[0]) == 1024


@pytest.mark.parametrize("embeds", [[], [1], {"data": "AAAA"}, 3])
def test_prompt_embeds_are_one_file_or_several(embeds: object) -> None:
    with pytest.raises(ValidationError, match="prompt_embeds"):
        completion(prompt_embeds=embeds)
