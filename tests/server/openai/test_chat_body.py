from typing import Any

import pytest
from pydantic import ValidationError

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
