import pytest
from pydantic import ValidationError

from ratoon.server.openai.routes import DetokenizeBody, TokenizeChatBody

HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def test_a_conversation_is_taken_as_chat_takes_it() -> None:
    assert TokenizeChatBody.model_validate(HELLO).add_generation_prompt


def test_token_ids_are_whole_numbers() -> None:
    assert DetokenizeBody.model_validate({"tokens": [1]}).tokens == [1]
    with pytest.raises(ValidationError):
        DetokenizeBody.model_validate({"tokens": ["1"]})
