from typing import Any

import pytest
from pydantic import ValidationError

from ratoon.errors import InvalidParameterError
from ratoon.server.requests import ChatBody, CompletionBody, DetokenizeBody, TokenizeChatBody

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def completion(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": "hello", **fields})


def chat(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({**HELLO, **fields})


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
        {"cache_salt": "\ud800"},
    ],
)
def test_a_known_field_with_a_bad_value_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        completion(**field)


@pytest.mark.parametrize(
    "field",
    [
        {"response_format": {"type": "json_object"}},
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
    params = completion().sampling_params(7)
    assert (params.max_tokens, params.temperature, params.n, params.logprobs) == (7, 1.0, 1, None)
    body = completion(
        temperature=0, top_k=3, min_p=0.1, seed=-5, stop="x", logit_bias={"7": -100}, logprobs=2
    )
    sampling = body.sampling_params(None)
    assert (sampling.temperature, sampling.top_k, sampling.min_p, sampling.seed) == (0, 3, 0.1, -5)
    assert (sampling.stop, sampling.logit_bias, sampling.logprobs) == (("x",), {7: -100}, 2)


def test_a_value_out_of_range_is_named_by_sampling_params() -> None:
    with pytest.raises(InvalidParameterError, match="top_p must be"):
        completion(top_p=1.5).sampling_params(1)


def test_how_much_output_is_asked_for() -> None:
    assert completion().token_limit() == 16
    assert completion(max_tokens=3).token_limit() == 3
    assert completion(max_tokens=0, echo=True).token_limit() == 0
    assert chat().token_limit() is None
    assert chat(max_tokens=3).token_limit() == 3
    assert chat(max_tokens=3, max_completion_tokens=4).token_limit() == 4
    with pytest.raises(ValidationError, match="at least 1"):
        chat(max_tokens=0)


def test_log_probabilities_are_asked_for_in_two_ways() -> None:
    assert completion(logprobs=0).num_logprobs() == 0
    assert chat(logprobs=True).num_logprobs() == 0
    assert chat(logprobs=True, top_logprobs=3).num_logprobs() == 3
    assert chat(logprobs=False).num_logprobs() is None
    with pytest.raises(ValidationError, match="top_logprobs needs logprobs"):
        chat(top_logprobs=3)


def test_a_message_reaches_the_template_with_all_its_fields() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    body = chat(
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": "4"},
        ]
    )
    assert [message.for_template() for message in body.messages] == [
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"content": "x"}],
        [{"role": "", "content": "x"}],
        [{"role": "user", "content": 3}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "hello",
    ],
)
def test_bad_messages_are_refused(messages: object) -> None:
    with pytest.raises(ValidationError):
        chat(messages=messages)


def test_the_template_sees_tools_and_extra_variables() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    body = chat(tools=[tool], tool_choice="auto", chat_template_kwargs={"enable_thinking": False})
    assert body.template_variables() == {"enable_thinking": False, "tools": [tool], "tool_choice": "auto"}
    assert chat().template_variables() == {}


def test_a_final_message_is_continued_or_followed_but_not_both() -> None:
    assert not chat(continue_final_message=True).add_generation_prompt
    assert chat().add_generation_prompt
    with pytest.raises(ValidationError, match="exclude each other"):
        chat(continue_final_message=True, add_generation_prompt=True)


def test_tokenize_takes_a_conversation_as_chat_does() -> None:
    assert TokenizeChatBody.model_validate(HELLO).add_generation_prompt
    assert DetokenizeBody.model_validate({"tokens": [1]}).tokens == [1]
    with pytest.raises(ValidationError):
        DetokenizeBody.model_validate({"tokens": ["1"]})
