"""Tools in messages for templates that know none."""

from typing import Any

from ratoon.chat.tool_format import HERMES, MISTRAL
from ratoon.chat.tool_prompt import with_fitting_ids, with_tools_written
from ratoon.chat.tools import Tool

TOOL = Tool("add", "Adds", {"type": "object", "properties": {"a": {"type": "integer"}}})
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def test_tools_stand_in_the_system_message() -> None:
    user = {"role": "user", "content": "1 and 1?"}
    for head, begins in (
        ([], "You can call"),
        ([{"role": "system", "content": "Be brief."}], "Be brief.\n\nYou"),
    ):
        system, last = with_tools_written([*head, user], [TOOL], HERMES)
        assert system["role"] == "system"
        assert system["content"].startswith(begins)
        assert '"name": "add", "description": "Adds"' in system["content"]
        assert '<tool_call>\n{"name": "NAME"' in system["content"]
        assert last == user
    assert with_tools_written([user], [], HERMES) == [user]


def test_calls_are_written_as_the_model_wrote_them_and_results_as_the_users_words() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "So:", "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "2"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ]
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    first, results, last = with_tools_written(messages, [], HERMES)
    assert first == {"role": "assistant", "content": f"So:\n{call}\n{call}"}
    assert results["role"] == "user"
    assert results["content"] == (
        "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    )
    assert last == {"role": "assistant", "content": call}


def test_ids_are_made_to_fit_where_a_family_wants_so_many_letters() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [CALL, {**CALL, "id": "abcdefgh9"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "1"},
    ]
    assistant, tool = with_fitting_ids(messages, MISTRAL)
    made, kept = (call["id"] for call in assistant["tool_calls"])
    assert kept == "abcdefgh9"
    assert len(made) == 9
    assert made.isalnum()
    assert tool["tool_call_id"] == made
    assert with_fitting_ids(messages, HERMES) is messages
