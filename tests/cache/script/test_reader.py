"""A script is read strictly: whatever is not exactly right is refused with its place."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.script.operations import (
    Admit,
    Append,
    CacheScript,
    Compute,
    Draft,
    Free,
    Preempt,
    Reset,
    Resume,
    State,
    Verify,
)
from ratoon.cache.script.reader import MAX_TOKENS, read_script
from ratoon.errors import CacheScriptError
from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.spec.cache_group import CacheGroupSpec

ADMIT: dict[str, Any] = {"op": "admit", "request": "r", "tokens": [1, 2]}


def read(*operations: object, **settings: object) -> CacheScript:
    return read_script(json.dumps({"num_blocks": 8, "block_size": 4, "ops": operations, **settings}))


def test_every_operation_is_read() -> None:
    script = read(
        {
            "op": "admit",
            "request": "r0",
            "tokens": [0, 1, 2],
            "ranges": [[5, 7], [3, 3], [9, 10]],
            "salt": "a",
            "adapter": "c0ffee",
            "media": [{"digest": "aa", "offset": 0, "length": 3}],
        },
        {"op": "compute", "request": "r0"},
        {"op": "compute", "request": "r0", "num_tokens": 16},
        {"op": "append", "request": "r0", "tokens": [7]},
        {"op": "draft", "request": "r0", "ranges": [[8, 10]]},
        {"op": "verify", "request": "r0", "accepted": 0},
        {"op": "preempt", "request": "r0"},
        {"op": "resume", "request": "r0"},
        {"op": "free", "request": "r0"},
        {"op": "reset"},
        {"op": "state"},
        groups=[{"kind": "full"}, {"kind": "sliding", "window": 32}],
        share_in_flight=False,
    )
    extras = ExtraKeys(adapter=b"\xc0\xff\xee", salt="a", media=(MediaItem(b"\xaa", 0, 3),))
    assert script.operations == (
        Admit("r0", (0, 1, 2, 5, 6, 9), extras),
        Compute("r0", None),
        Compute("r0", 16),
        Append("r0", (7,)),
        Draft("r0", (8, 9)),
        Verify("r0", 0),
        Preempt("r0"),
        Resume("r0"),
        Free("r0"),
        Reset(),
        State(),
    )
    assert script.groups == (CacheGroupSpec(), CacheGroupSpec(32))
    assert (script.num_blocks, script.block_size, script.share_in_flight) == (8, 4, False)


def test_one_full_group_with_sharing_is_what_is_meant_when_nothing_is_said() -> None:
    script = read()
    assert script.groups == (CacheGroupSpec(),)
    assert script.share_in_flight


@pytest.mark.parametrize(
    ("operation", "complaint"),
    [
        (3, "must be a JSON object"),
        ({}, "`op` is missing"),
        ({"op": 3}, "`op` must be a string"),
        ({"op": "compote"}, "`compote` is not an operation"),
        ({"op": "admit", "request": "r"}, "give no token"),
        ({"op": "admit", "tokens": [1]}, "`request` is missing"),
        (ADMIT | {"request": 1}, "`request` must be a string"),
        (ADMIT | {"request": ""}, "`request` must be a string that is not empty"),
        (ADMIT | {"request": "\ud800"}, "`request` must be a string without lone surrogates"),
        (ADMIT | {"prompt": "x"}, "`prompt` is not a field"),
        (ADMIT | {"tokens": 1}, "`tokens` must be a list"),
        (ADMIT | {"tokens": [1, "2"]}, "`tokens` item 1 must be a whole number"),
        (ADMIT | {"tokens": [True]}, "`tokens` item 0 must be a whole number"),
        (ADMIT | {"tokens": [1.0]}, "`tokens` item 0 must be a whole number"),
        (ADMIT | {"tokens": [-1]}, "`tokens` item 0 must be a whole number"),
        (ADMIT | {"tokens": [2**32]}, "`tokens` item 0 must be a whole number"),
        (ADMIT | {"ranges": [[0, 1, 2]]}, "`ranges` item 0 must be two numbers"),
        (ADMIT | {"ranges": [[2, 1]]}, "the first not above the second"),
        (ADMIT | {"ranges": [[0, MAX_TOKENS]]}, "more than"),
        (ADMIT | {"salt": ""}, "`salt` must be a string that is not empty"),
        (ADMIT | {"salt": None}, "`salt` must be a string"),
        (ADMIT | {"adapter": "xy"}, "`adapter` must be pairs of hexadecimal digits"),
        (ADMIT | {"adapter": "abc"}, "`adapter` must be pairs of hexadecimal digits"),
        (ADMIT | {"media": [{"digest": "aa", "offset": 0}]}, "`media` item 0 `length` is missing"),
        (ADMIT | {"media": [{"digest": "aa", "offset": -1, "length": 1}]}, "`offset` must be a whole number"),
        (ADMIT | {"media": [{"digest": "aa", "offset": 0, "length": 0}]}, "`length` must be a whole number"),
        (ADMIT | {"media": [{"digest": "aa", "offset": 1, "length": 2}]}, "reaches beyond the prompt"),
        (ADMIT | {"media": [{"digest": "aa", "offset": 0, "length": 2}] * 2}, "starts before"),
        (ADMIT | {"media": [7]}, "`media` item 0 must be a JSON object"),
        ({"op": "compute", "request": "r", "num_tokens": 0}, "`num_tokens` must be a whole number from 1"),
        ({"op": "compute", "request": "r", "num_tokens": True}, "`num_tokens` must be a whole number"),
        ({"op": "verify", "request": "r"}, "`accepted` is missing"),
        ({"op": "verify", "request": "r", "accepted": -1}, "`accepted` must be a whole number"),
        ({"op": "append", "request": "r", "tokens": []}, "give no token"),
        ({"op": "state", "request": "r"}, "`request` is not a field"),
    ],
)
def test_a_malformed_operation_is_refused_with_its_number_and_reason(operation: Any, complaint: str) -> None:
    with pytest.raises(CacheScriptError) as caught:
        read(ADMIT, operation)
    assert caught.value.message.startswith("Operation 2 is malformed: ")
    assert complaint in caught.value.message


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"num_blocks": 1}, "`num_blocks` must be a whole number from 2"),
        ({"num_blocks": 10**9}, "`num_blocks` must be a whole number"),
        ({"num_blocks": None}, "`num_blocks` must be a whole number"),
        ({"block_size": 0}, "`block_size` must be a whole number from 1"),
        ({"block_size": 4.0}, "`block_size` must be a whole number"),
        ({"share_in_flight": 1}, "`share_in_flight` must be true or false"),
        ({"groups": []}, "`groups` must not be empty"),
        ({"groups": [{"kind": "round"}]}, "`groups` item 0 `kind` must be full or sliding"),
        ({"groups": [{"kind": "sliding"}]}, "`groups` item 0 `window` is missing"),
        ({"groups": [{"kind": "sliding", "window": 0}]}, "`window` must be a whole number"),
        ({"groups": [{"kind": "full", "window": 4}]}, "`window` is not a field"),
        ({"ops": {}}, "`ops` must be a list"),
        ({"block_sise": 4}, "`block_sise` is not a field"),
    ],
)
def test_a_malformed_cache_is_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(CacheScriptError) as caught:
        read(**settings)
    assert complaint in caught.value.message


@pytest.mark.parametrize("missing", ["num_blocks", "block_size", "ops"])
def test_what_cannot_be_guessed_must_be_there(missing: str) -> None:
    script = {"num_blocks": 8, "block_size": 4, "ops": []}
    del script[missing]
    with pytest.raises(CacheScriptError, match=f"`{missing}` is missing"):
        read_script(json.dumps(script))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ('{"num_blocks": 2, "num_blocks": 3, "ops": []}', "`num_blocks` stands there twice"),
        ('{"num_blocks": 2, "block_size": 4, "ops": [{"op": "state", "op": "reset"}]}', "Operation 1 .*`op`"),
        (
            '{"num_blocks": 2, "block_size": 4, "groups": [{"kind": "full", "kind": "full"}], "ops": []}',
            "`kind`",
        ),
    ],
)
def test_a_field_that_is_given_twice_is_named(source: str, complaint: str) -> None:
    with pytest.raises(CacheScriptError, match=complaint):
        read_script(source)


@pytest.mark.parametrize(
    "source", ["", "{", "[]", "null", "7", '{"num_blocks": 2, "num_blocks": 3}', "[" * 100_000, "1" * 10_000]
)
def test_what_is_no_script_at_all_is_refused(source: str) -> None:
    with pytest.raises(CacheScriptError):
        read_script(source)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["op", "request", "tokens", "ranges", "salt", "adapter", "media"]), json_values)
def test_no_value_of_any_field_makes_the_reader_stumble(name: str, value: object) -> None:
    with suppress(CacheScriptError):
        read(ADMIT | {name: value})
