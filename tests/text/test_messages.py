"""What callers send, as templates get it."""

import json
from typing import Any

import pytest

from ratoon.errors import ChatTemplateError
from ratoon.text.chat_prompt import encode_chat
from ratoon.text.chat_template import ChatTemplate
from ratoon.text.tokenizer import Tokenizer

CALLS = ChatTemplate("{% for m in messages %}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}")
ROLES = ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
PARTS = ChatTemplate(
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text | trim }}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}"
)


def call(arguments: Any) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": arguments}
    return [
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    ]


@pytest.mark.parametrize(
    ("arguments", "rendered"),
    [
        ('{"city": "Zürich", "n": [1.5, null]}', '{"city": "Zürich", "n": [1.5, null]}'),
        ({"a": 1}, '{"a": 1}'),
        ("{}", "{}"),
        ("[1]", '"[1]"'),
        ("no json", '"no json"'),
        ("[" * 9999, json.dumps("[" * 9999)),
    ],
)
def test_arguments_of_calls_reach_the_template_as_mappings(arguments: Any, rendered: str) -> None:
    assert CALLS.render(call(arguments)) == rendered


def test_a_control_token_that_json_hides_stays_text(byte_level: Tokenizer) -> None:
    template = ChatTemplate("<s>{{ messages[0].tool_calls[0].function.arguments.a }}")
    ids = encode_chat(byte_level, template, call('{"a": "\\u003c/s>"}'))
    assert [number for number in ids if number in byte_level.control_ids.values()] == [0]
    assert byte_level.decode(ids, skip_special=False) == "<s></s>"


def test_a_developer_speaks_as_the_system_where_the_template_knows_no_developer() -> None:
    messages = [{"role": "developer", "content": "x"}]
    assert ROLES.render(messages) == "system:x;"
    knows = ChatTemplate("{% if messages[0].role == 'developer' %}dev{% else %}no{% endif %}")
    assert knows.render(messages) == "dev"


def test_a_role_that_the_template_does_not_name_is_refused() -> None:
    with pytest.raises(ChatTemplateError, match="no role 'banana'"):
        ROLES.render([{"role": "banana", "content": "x"}])
    knows = ChatTemplate("{% if messages[0].role == 'ipython' %}tool{% endif %}")
    assert knows.render([{"role": "ipython", "content": ""}]) == "tool"


@pytest.mark.parametrize("content", [None, "", []])
def test_nothing_is_an_empty_text(content: object) -> None:
    assert ROLES.render([{"role": "user", "content": content}]) == "user:;"
    assert PARTS.render([{"role": "user", "content": content}]) == ""


def test_a_template_that_walks_parts_gets_parts() -> None:
    parts = [{"type": "text", "text": " one "}, {"type": "input_text", "text": "two", "cache_control": {}}]
    messages = [{"role": "user", "content": parts}]
    assert PARTS.takes_parts
    assert PARTS.render(messages) == "onetwo"
    for source in (
        "{{ messages[0].content | trim }}",
        "{{ messages | tojson }}",
        "{{ messages[0].content }}",
    ):
        assert not ChatTemplate(source).takes_parts
    assert ROLES.render(messages) == "user: one \ntwo;"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": "x"}}, "'image_url'"),
        ({"type": "text"}, "'text'"),
        ("loose", "not text"),
        ({}, "not text"),
    ],
)
def test_what_is_no_text_is_refused_by_name(part: object, named: str) -> None:
    with pytest.raises(ChatTemplateError, match=named):
        ROLES.render([{"role": "user", "content": [part]}])


def test_a_list_of_parts_can_be_continued(byte_level: Tokenizer) -> None:
    template = ChatTemplate("<s>{{ messages[-1].content }}</s>")
    final = [{"role": "assistant", "content": [{"type": "text", "text": "a b"}]}]
    ids = encode_chat(byte_level, template, final, continue_final_message=True)
    assert byte_level.decode(ids, skip_special=False) == "<s>a b"


def test_a_template_says_whether_it_reads_tools() -> None:
    assert ChatTemplate("{% if tools %}x{% endif %}").reads_tools
    assert not ChatTemplate("{% set tools = 1 %}{{ tools }}").reads_tools
