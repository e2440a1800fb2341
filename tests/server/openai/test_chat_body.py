from typing import Any

import pytest
from pydantic import ValidationError

from ratoon.errors import InvalidParameterError
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.server.openai.chat import ChatBody

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def chat(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({**HELLO, **fields})


def test_output_is_limited_by_either_name_or_by_the_context() -> None:
    assert chat().token_limit() is None
    assert chat(max_tokens=3).token_limit() == 3
    assert chat(max_tokens=3, max_completion_tokens=4).token_limit() == 4
    with pytest.raises(ValidationError, match="at least 1"):
        chat(max_tokens=0)


def test_log_probabilities_are_asked_for_with_their_alternatives() -> None:
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
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
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


def test_a_part_that_is_no_text_is_named() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "x"}}]
    with pytest.raises(ValidationError, match="'image_url' cannot be read") as caught:
        chat(messages=[{"role": "user", "content": parts}])
    assert caught.value.errors()[0]["loc"] == ("messages", 0, "content")


TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("choice", "expected", "name"),
    [
        (None, "auto", None),
        ("none", "none", None),
        ("required", "required", None),
        ({"type": "function", "function": {"name": "f"}}, "auto", "f"),
    ],
)
def test_tools_and_their_choice(choice: object, expected: str, name: str | None) -> None:
    request = chat(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False).chat_request()
    assert (request.tools.choice, request.tools.name, request.tools.parallel) == (expected, name, False)
    assert [tool.for_template() for tool in request.tools.tools] == [TOOL]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tool_choice": "required"}, "there are no tools"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "names 'g'"),
        ({"tools": [TOOL], "tool_choice": "always"}, "must be none, auto"),
        ({"tools": [TOOL, TOOL]}, "Two tools"),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        chat(**fields).chat_request()


def test_the_template_sees_extra_variables() -> None:
    body = chat(chat_template_kwargs={"enable_thinking": False})
    assert body.chat_request().variables == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, StructuredOutputs(json_object=True)),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"type": "null"}},
                }
            },
            StructuredOutputs(json={"type": "null"}),
        ),
        ({"structured_outputs": {"choice": ["a", "b"]}}, StructuredOutputs(choice=["a", "b"])),
    ],
)
def test_an_answer_can_be_asked_for_in_a_form(fields: dict[str, Any], form: StructuredOutputs | None) -> None:
    assert chat(**fields).form() == chat(**fields).sampling_params().structured_outputs == form


@pytest.mark.parametrize(
    "wanted", [{}, {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}}]
)
def test_a_response_format_without_meaning_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        chat(response_format=wanted)
    assert caught.value.errors()[0]["loc"] == ("response_format",)


def test_two_forms_exclude_each_other() -> None:
    both = chat(response_format={"type": "json_object"}, structured_outputs={"regex": "a"})
    with pytest.raises(InvalidParameterError, match="exclude each other"):
        both.sampling_params()


def test_a_final_message_is_continued_or_followed_but_not_both() -> None:
    assert not chat(continue_final_message=True).add_generation_prompt
    assert chat().add_generation_prompt
    with pytest.raises(ValidationError, match="exclude each other"):
        chat(continue_final_message=True, add_generation_prompt=True)
