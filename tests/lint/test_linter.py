"""Each kind of difference, made and found; and what is no difference, left alone."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.lint.linter import Linter, Observation, common_length
from ratoon.lint.log import read_request
from ratoon.lint.prompt import Role
from ratoon.lint.rule import Rule

RULES_OF_HOUSE = "".join(
    f"Rule {number}: leave plot {number} as tidy as it was found.\n" for number in range(20)
)
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": f"Does what {name} says, and no more than that."},
    }
    for name in ("water", "weed", "prune", "harvest")
]
TURNS = [
    {"role": "user", "content": "How deep should I plant the setts? " * 4},
    {"role": "assistant", "content": "A hand's breadth, with the buds to the sides. " * 4},
    {"role": "user", "content": "And when can I cut them for the first time? " * 4},
    {"role": "assistant", "content": "After a year or so, close to the ground. " * 4},
]

Body = dict[str, Any]


def chat(system: str, *messages: Body, **more: Any) -> Body:
    return {"messages": [{"role": "system", "content": system}, *messages], **more}


def lint(*bodies: Body) -> list[Observation]:
    linter = Linter()
    return [found for line, body in enumerate(bodies, 1) for found in linter.add(read_request(body, line))]


QUESTION = {"role": "user", "content": "What is a ratoon?"}
OTHER_QUESTION = {"role": "user", "content": "Who grows it?"}

KINDS: dict[Rule, tuple[Body, Body]] = {
    Rule.TIMESTAMP: (
        chat(f"Today is Monday, 7 December 2026, 11:24.\n{RULES_OF_HOUSE}", QUESTION),
        chat(f"Today is Tuesday, 8 December 2026, 09:05.\n{RULES_OF_HOUSE}", OTHER_QUESTION),
    ),
    Rule.RANDOM_ID: (
        chat(f"Session 7f3c9a10-1111-4222-8333-abcdefabcdef\n{RULES_OF_HOUSE}", QUESTION),
        chat(f"Session 0b1d2e3f-4444-4555-8666-fedcbafedcba\n{RULES_OF_HOUSE}", OTHER_QUESTION),
    ),
    Rule.TOOL_ORDER: (
        chat(RULES_OF_HOUSE, QUESTION, tools=TOOLS),
        chat(RULES_OF_HOUSE, OTHER_QUESTION, tools=TOOLS[::-1]),
    ),
    Rule.KEY_ORDER: (
        chat(RULES_OF_HOUSE, QUESTION, tools=[{"name": "water", "strict": True}]),
        chat(RULES_OF_HOUSE, OTHER_QUESTION, tools=[{"strict": True, "name": "water"}]),
    ),
    Rule.WHITESPACE: (
        chat(f"Be brief.\n{RULES_OF_HOUSE}", QUESTION),
        chat(f"Be brief. \n\n{RULES_OF_HOUSE}", OTHER_QUESTION),
    ),
    Rule.UNICODE: (
        chat(f"Caf\u00e9 \u201cRatoon\u201d\n{RULES_OF_HOUSE}", QUESTION),
        chat(f'Cafe\u0301 "Ratoon"\n{RULES_OF_HOUSE}', OTHER_QUESTION),
    ),
    Rule.REASONING_DROPPED: (
        chat(
            "Think.",
            TURNS[0],
            {"role": "assistant", "content": "<think>Setts, then.</think>\n" + TURNS[1]["content"]},
        ),
        chat("Think.", *TURNS[:3]),
    ),
    Rule.SHUFFLED: (
        chat("Examples:", *TURNS, QUESTION),
        chat("Examples:", *TURNS[2:], *TURNS[:2], OTHER_QUESTION),
    ),
    Rule.HISTORY_DROPPED: (chat("Garden.", *TURNS), chat("Garden.", *TURNS[2:], QUESTION)),
    Rule.HISTORY_SUMMARISED: (
        chat("Garden.", *TURNS),
        chat("Garden.", {"role": "user", "content": "So far: planting depth."}, *TURNS[2:], QUESTION),
    ),
    Rule.HISTORY_REWRITTEN: (
        chat("Garden.", *TURNS),
        chat("Garden.", {"role": "user", "content": "How deep do setts go?"}, *TURNS[1:], QUESTION),
    ),
    Rule.EARLY_CHANGE: (
        chat(f"You talk with Ada, who likes roses.\n{RULES_OF_HOUSE}", QUESTION),
        chat(f"You talk with Bo, who has a balcony.\n{RULES_OF_HOUSE}", OTHER_QUESTION),
    ),
}


@pytest.mark.parametrize("rule", KINDS)
def test_each_kind_of_difference_is_found_and_no_other(rule: Rule) -> None:
    found = lint(*KINDS[rule])
    assert [each.rule for each in found] == [rule]
    assert found[0].num_tokens >= 32
    assert (found[0].earlier_line, found[0].line) == (1, 2)


def test_every_rule_has_a_test_and_a_proposal() -> None:
    assert set(KINDS) == set(Rule)
    assert all(rule.advice.title and rule.advice.proposal for rule in Rule)


def test_a_conversation_that_only_grows_has_no_fault() -> None:
    assert not lint(*(chat(RULES_OF_HOUSE, *TURNS[:length]) for length in range(1, 5)))


def test_prompts_with_nothing_in_common_have_no_fault() -> None:
    assert not lint(chat(RULES_OF_HOUSE, QUESTION), chat("Ein ganz anderer Auftrag.", OTHER_QUESTION))


def test_a_date_in_the_last_message_costs_nothing() -> None:
    at = {"role": "user", "content": "It is 2026-12-07 11:24. What now?"}
    later = {"role": "user", "content": "It is 2026-12-08 07:00. What now?"}
    assert not lint(chat(RULES_OF_HOUSE, at), chat(RULES_OF_HOUSE, later))


def test_two_faults_in_one_prompt_are_both_found() -> None:
    first = f"2026-12-07T11:24:00Z 7f3c9a10-1111-4222-8333-abcdefabcdef\n{RULES_OF_HOUSE}"
    second = f"2026-12-08T09:05:00Z 0b1d2e3f-4444-4555-8666-fedcbafedcba\n{RULES_OF_HOUSE}"
    found = {each.rule for each in lint(chat(first, QUESTION), chat(second, OTHER_QUESTION))}
    assert found == {Rule.TIMESTAMP, Rule.RANDOM_ID}


def test_a_fault_is_not_counted_where_another_earlier_prompt_is_shared_anyway() -> None:
    first, second = KINDS[Rule.TIMESTAMP]
    assert [each.line for each in lint(first, second, second)] == [2]


def test_what_a_difference_costs_is_the_text_after_it() -> None:
    cost = lint(*KINDS[Rule.TIMESTAMP])[0].num_tokens
    assert abs(cost - len(RULES_OF_HOUSE) // 4) < 20


def test_the_difference_is_shown_from_both_prompts() -> None:
    found = lint(*KINDS[Rule.TIMESTAMP])[0]
    assert "Monday" in found.before
    assert "Tuesday" in found.after
    assert found.role is Role.SYSTEM


def test_a_lone_prompt_with_a_date_near_its_start_is_suspect() -> None:
    linter = Linter()
    body = KINDS[Rule.TIMESTAMP][0]
    assert not linter.add(read_request(body, 1))
    assert [each.rule for each in linter.suspects()] == [Rule.TIMESTAMP]
    linter.add(read_request(body, 2))
    assert not list(linter.suspects())


def test_anthropic_s_shape_is_read_in_the_order_tools_system_messages() -> None:
    prompt = read_request(
        {
            "system": [{"type": "text", "text": "S"}],
            "tools": [{"name": "t"}],
            "messages": [
                {"role": "user", "content": "U"},
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "R"}, {"type": "text", "text": "A"}],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "content": [{"type": "text", "text": "X"}]}],
                },
            ],
        }
    )
    assert [(piece.role.value, piece.text) for piece in prompt.pieces] == [
        ("tools", '{"name": "t"}'),
        ("system", "S"),
        ("user", "U"),
        ("reasoning", "R"),
        ("assistant", "A"),
        ("tool", "X"),
    ]


def test_envelopes_traces_and_responses_are_read() -> None:
    text = {"prompt": "P"}
    assert read_request({"custom_id": "1", "body": text}).pieces == read_request(text).pieces
    assert read_request({"input": "P", "session_id": 7}).conversation == "7"
    responses = {
        "instructions": "S",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "U"}]}],
    }
    assert [piece.text for piece in read_request(responses).pieces] == ["S", "U"]


@pytest.mark.parametrize(
    "body", [[], 3, {}, {"messages": 3}, {"messages": ["x"]}, {"messages": [{"content": 3}]}]
)
def test_what_is_no_request_is_refused(body: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_request(body)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ("messages", "role", "content", "type", "text", "tools", "input", "system", "thinking")
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(json_values, max_size=4))
def test_whatever_json_it_is_the_linter_says_something_or_refuses_it(values: list[object]) -> None:
    linter = Linter(min_tokens=1)
    for line, value in enumerate(values):
        try:
            prompt = read_request(json.loads(json.dumps(value)), line)
        except ValueError:
            continue
        linter.add(prompt)
    list(linter.suspects())


@given(st.text(alphabet="ab", max_size=20), st.text(alphabet="ab", max_size=20))
def test_the_common_length_is_that_of_the_common_beginning(first: str, second: str) -> None:
    length = common_length(first, second)
    assert first[:length] == second[:length]
    assert first[length : length + 1] != second[length : length + 1] or length in (len(first), len(second))
