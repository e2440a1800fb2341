"""What both kinds of generation have in common, tried on the simpler one."""

from typing import Any

import pytest
from pydantic import ValidationError

from ratoon.errors import InvalidParameterError
from ratoon.server.openai.completions import CompletionBody


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": "hello", **fields})


@pytest.mark.parametrize(
    "field",
    [
        {"max_tokens": "5"},
        {"max_tokens": -1},
        {"max_tokens": 0},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"stream": 1},
        {"stop": ["x"] * 65},
        {"stop": 3},
        {"logit_bias": {"a": 1}},
        {"logit_bias": {"²": 1}},
        {"logit_bias": {"-1": 1}},
        {"logprobs": 21},
        {"logprobs": True},
        {"cache_salt": ""},
        {"cache_salt": None, "cache": {"read": "no"}},
        {"cache": True},
        {"stream_options": {"include_usage": True}},
        {"n": 1.5},
        {"priority": -1},
        {"priority": 1001},
        {"priority": "high"},
        {"priority": 1.5},
        {"cache_salt": "\ud800"},
    ],
)
def test_a_known_field_with_a_bad_value_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        completion(**field)


@pytest.mark.parametrize(
    "field",
    [
        {"functions": [{"name": "f"}]},
        {"best_of": 4},
        {"suffix": "end"},
        {"chat_template": "{{ messages }}"},
    ],
)
def test_what_would_change_the_answer_and_is_not_done_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="is not supported by this server"):
        completion(**field)


def test_fields_that_ask_for_nothing_pass_in_silence() -> None:
    body = completion(
        response_format={"type": "text"}, functions=None, best_of=1, suffix="", user="me", metadata={"a": "b"}
    )
    assert body.unknown_fields() == []


def test_unknown_fields_are_named_wherever_they_are() -> None:
    body = completion(frequencypenalty=1, stream=True, stream_options={"chunks": 3}, cache={"reed": True})
    assert sorted(body.unknown_fields()) == ["cache.reed", "frequencypenalty", "stream_options.chunks"]


def test_sampling_parameters_keep_their_names_and_defaults() -> None:
    params = completion(max_tokens=7).sampling_params()
    assert (params.max_tokens, params.temperature, params.n, params.logprobs) == (7, 1.0, 1, None)
    body = completion(
        temperature=0, top_k=3, min_p=0.1, seed=-5, stop="x", logit_bias={"7": -100}, logprobs=2
    )
    sampling = body.sampling_params()
    assert (sampling.temperature, sampling.top_k, sampling.min_p, sampling.seed) == (0, 3, 0.1, -5)
    assert (sampling.stop, sampling.logit_bias, sampling.logprobs) == (("x",), {7: -100}, 2)


def test_a_value_out_of_range_is_named_by_sampling_params() -> None:
    with pytest.raises(InvalidParameterError, match="top_p must be"):
        completion(top_p=1.5).sampling_params()
