"""Operations do to the real cache what they say, and impossible ones are refused with number and reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.script.reader import read_script
from ratoon.cache.script.session import ScriptSession
from ratoon.errors import CacheScriptError


def run(*operations: dict[str, Any], **settings: object) -> list[dict[str, Any]]:
    """Run a script and return its lines as JSON would bring them."""
    script = {"num_blocks": 16, "block_size": 4, "ops": operations} | settings
    lines = ScriptSession(read_script(json.dumps(script))).run()
    return [json.loads(json.dumps(line)) for line in lines]


def admit(request: str, num_tokens: int, first: int = 0, **extras: object) -> dict[str, Any]:
    return {"op": "admit", "request": request, "ranges": [[first, first + num_tokens]], **extras}


def op(name: str, request: str, **fields: object) -> dict[str, Any]:
    return {"op": name, "request": request, **fields}


STATE = {"op": "state"}


def test_an_admission_shows_cached_tokens_and_tables() -> None:
    assert run(admit("r", 10), groups=[{"kind": "full"}, {"kind": "sliding", "window": 6}]) == [
        {
            "op": "admit",
            "request": "r",
            "admitted": True,
            "cached_tokens": 0,
            "block_tables": [[1, 2, 3], [4, 5, 6]],
            "events": [],
        }
    ]


def test_a_refused_admission_changes_nothing_and_the_name_stays_free() -> None:
    lines = run(STATE, admit("r", 17), STATE, admit("r", 16), num_blocks=5)
    assert lines[1] == {
        "op": "admit",
        "request": "r",
        "admitted": False,
        "cached_tokens": 0,
        "block_tables": [[]],
        "events": [],
    }
    assert lines[2] == lines[0]
    assert lines[3]["admitted"]


def test_compute_commits_and_shows_what_was_stored() -> None:
    first, second = run(admit("r", 10), op("compute", "r", num_tokens=5), op("compute", "r"))[1:]
    assert (first["cached_tokens"], first["computed_tokens"], first["num_computed"]) == (0, 5, 5)
    assert [(event["event"], event["block_id"], event["group"]) for event in first["events"]] == [
        ("stored", 1, 0)
    ]
    assert len(first["events"][0]["block_hash"]) == 64
    assert (second["computed_tokens"], second["num_computed"], second["num_known"]) == (5, 10, 10)
    assert [event["block_id"] for event in second["events"]] == [2]


def test_a_request_still_prefilling_takes_what_was_committed_meanwhile() -> None:
    lines = run(admit("a", 10), admit("b", 10), op("compute", "a"), op("compute", "b"), STATE)
    assert (lines[3]["cached_tokens"], lines[3]["computed_tokens"]) == (8, 2)
    assert lines[3]["block_tables"] == [[1, 2, 6]]
    assert lines[4]["num_keys"] == 2
    assert lines[4]["keyed_blocks"] == [1, 2]
    assert lines[4]["stats"]["num_hit_tokens"] == 8


def test_a_chunk_after_a_rematch_stops_at_what_is_known() -> None:
    lines = run(admit("a", 8), admit("b", 9), op("compute", "a"), op("compute", "b", num_tokens=6))
    assert (lines[3]["cached_tokens"], lines[3]["computed_tokens"]) == (8, 1)


def test_without_sharing_in_flight_each_computes_its_own_copy() -> None:
    lines = run(
        admit("a", 10), admit("b", 10), op("compute", "a"), op("compute", "b"), STATE, share_in_flight=False
    )
    assert (lines[3]["cached_tokens"], lines[3]["computed_tokens"]) == (0, 10)
    assert lines[4]["num_keys"] == 2
    assert lines[4]["keyed_blocks"] == [1, 2, 4, 5]


def test_a_decoding_request_keeps_its_own_block_although_another_has_committed_its_like() -> None:
    lines = run(
        *(admit("a", 7), admit("b", 7), op("compute", "a"), op("compute", "b")),
        *(op("append", "a", tokens=[7]), op("append", "b", tokens=[7])),
        *(op("compute", "a"), op("compute", "b"), STATE),
    )
    assert lines[7]["block_tables"] == [[1, 4]]
    assert [event["block_id"] for event in lines[7]["events"]] == [4]
    assert (lines[8]["keyed_blocks"], lines[8]["num_keys"]) == ([1, 2, 4], 2)


def test_append_makes_tokens_known_or_is_refused_whole() -> None:
    lines = run(
        admit("r", 3),
        op("append", "r", tokens=[3, 4]),
        op("append", "r", ranges=[[5, 9]]),
        STATE,
        num_blocks=3,
    )
    assert (lines[1]["reserved"], lines[1]["num_known"], lines[1]["block_tables"]) == (True, 5, [[1, 2]])
    assert (lines[2]["reserved"], lines[2]["num_known"], lines[2]["block_tables"]) == (False, 5, [[1, 2]])
    assert lines[3]["free_queue"] == []


def test_accepted_drafts_are_committed_and_rejected_ones_leave_no_trace() -> None:
    lines = run(
        admit("r", 3),
        op("draft", "r", tokens=[3, 4, 5, 6, 7]),
        op("verify", "r", accepted=2),
        op("append", "r", tokens=[50, 51, 52]),
        op("compute", "r"),
        admit("s", 9),
    )
    assert (lines[1]["reserved"], lines[1]["num_known"], lines[1]["block_tables"]) == (True, 3, [[1, 2]])
    assert (lines[2]["accepted_tokens"], lines[2]["num_known"], lines[2]["num_computed"]) == (2, 5, 5)
    assert [event["block_id"] for event in lines[2]["events"]] == [1]
    assert [event["block_id"] for event in lines[4]["events"]] == [2]
    assert lines[5]["cached_tokens"] == 4


def test_drafts_without_room_are_refused() -> None:
    lines = run(admit("r", 4), op("draft", "r", tokens=[4]), op("append", "r", tokens=[4]), num_blocks=2)
    assert [line["reserved"] for line in lines[1:]] == [False, False]


def test_a_preempted_request_comes_back_to_its_own_blocks_and_its_hits_are_counted_apart() -> None:
    lines = run(
        admit("r", 6),
        op("compute", "r"),
        op("append", "r", tokens=[6, 7, 8]),
        op("compute", "r"),
        op("preempt", "r"),
        op("resume", "r"),
        STATE,
    )
    assert lines[4] == {"op": "preempt", "request": "r", "events": []}
    assert (lines[5]["admitted"], lines[5]["cached_tokens"]) == (True, 8)
    assert lines[5]["block_tables"] == [[1, 2, 3]]
    stats = lines[6]["stats"]
    assert (stats["num_query_tokens"], stats["num_hit_tokens"]) == (6, 0)
    assert (stats["num_preempted_query_tokens"], stats["num_preempted_hit_tokens"]) == (9, 8)


def test_preemption_forgets_drafts() -> None:
    lines = run(
        admit("r", 4),
        op("draft", "r", tokens=[4]),
        op("preempt", "r"),
        op("resume", "r"),
        op("compute", "r"),
    )
    assert (lines[3]["block_tables"], lines[4]["num_computed"]) == ([[1]], 4)


def test_a_refused_resumption_leaves_the_request_preempted() -> None:
    lines = run(
        admit("r", 8),
        op("preempt", "r"),
        admit("s", 5, first=50),
        op("resume", "r"),
        op("free", "s"),
        op("resume", "r"),
        num_blocks=3,
    )
    assert [lines[3]["admitted"], lines[5]["admitted"]] == [False, True]


def test_the_state_shows_queue_references_and_keys() -> None:
    lines = run(admit("a", 8), op("compute", "a"), admit("b", 9), op("free", "a"), STATE, num_blocks=6)
    state = lines[-1]
    assert state["free_queue"] == [4, 5]
    assert state["ref_counts"] == {"1": 1, "2": 1, "3": 1}
    assert (state["keyed_blocks"], state["num_keys"]) == ([1, 2], 2)


def test_a_reset_shows_epoch_and_dropped_blocks() -> None:
    lines = run(admit("a", 8), op("compute", "a"), {"op": "reset"}, STATE)
    assert lines[2] == {
        "op": "reset",
        "epoch": 1,
        "dropped_blocks": 2,
        "events": [{"event": "reset", "epoch": 1, "num_dropped_blocks": 2}],
    }
    assert lines[3]["num_keys"] == 0


def test_evictions_come_before_what_is_stored_in_their_place() -> None:
    lines = run(admit("a", 8), op("compute", "a"), op("free", "a"), admit("b", 8, first=50), num_blocks=3)
    stored, evicted = lines[1]["events"], lines[3]["events"]
    assert [(event["event"], event["block_id"]) for event in evicted] == [("evicted", 2), ("evicted", 1)]
    assert {event["block_hash"] for event in evicted} == {event["block_hash"] for event in stored}


@pytest.mark.parametrize(
    ("operations", "complaint"),
    [
        ([op("compute", "x")], "(compute) is impossible: there is no request x"),
        ([op("free", "x")], "(free) is impossible: there is no request x"),
        ([admit("r", 2)], "(admit) is impossible: r was admitted before"),
        ([op("resume", "r")], "r is running"),
        ([op("preempt", "r"), op("compute", "r")], "r is preempted"),
        ([op("preempt", "r"), op("preempt", "r")], "r is preempted"),
        ([op("preempt", "r"), admit("r", 2)], "r was admitted before"),
        ([op("compute", "r", num_tokens=5)], "r has 4 known tokens left to compute"),
        ([op("verify", "r", accepted=0)], "r has 0 drafts to verify"),
        ([op("draft", "r", tokens=[9]), op("verify", "r", accepted=2)], "r has 1 drafts to verify"),
        ([op("draft", "r", tokens=[9]), op("draft", "r", tokens=[9])], "not verified"),
        ([op("draft", "r", tokens=[9]), op("append", "r", tokens=[9])], "not verified"),
        ([op("draft", "r", tokens=[9]), op("compute", "r")], "not verified"),
        ([op("free", "r"), op("free", "r")], "there is no request r"),
    ],
)
def test_an_impossible_operation_is_refused_after_those_before_it(
    operations: list[dict[str, Any]], complaint: str
) -> None:
    script = {"num_blocks": 16, "block_size": 4, "ops": [admit("r", 4), *operations, STATE]}
    lines = ScriptSession(read_script(json.dumps(script))).run()
    for _ in operations:
        next(lines)
    with pytest.raises(CacheScriptError) as caught:
        next(lines)
    assert caught.value.message.startswith(f"Operation {len(operations) + 1} ")
    assert complaint in caught.value.message


operations = st.one_of(
    st.builds(admit, st.sampled_from("abc"), st.integers(1, 20), st.sampled_from([0, 0, 0, 50])),
    st.builds(op, st.sampled_from(["compute", "preempt", "resume", "free"]), st.sampled_from("abc")),
    st.builds(
        lambda name, request, tokens: op(name, request, tokens=tokens),
        st.sampled_from(["append", "draft"]),
        st.sampled_from("abc"),
        st.lists(st.integers(0, 3), min_size=1, max_size=6),
    ),
    st.builds(
        lambda request, accepted: op("verify", request, accepted=accepted),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    st.sampled_from([STATE, {"op": "reset"}]),
)


@given(st.lists(operations, max_size=25), st.booleans(), st.sampled_from([5, 9, 30]))
def test_any_script_keeps_every_law_once_its_impossible_operations_are_struck_out(
    script: list[dict[str, Any]], sharing: bool, num_blocks: int
) -> None:
    groups = [{"kind": "full"}, {"kind": "sliding", "window": 6}]
    while (
        number := refused(script, groups=groups, share_in_flight=sharing, num_blocks=num_blocks)
    ) is not None:
        del script[number - 1]


def refused(script: list[dict[str, Any]], **settings: object) -> int | None:
    """Run a script and return the number of the operation that was impossible, if one was."""
    try:
        run(*script, **settings)
    except CacheScriptError as error:
        return int(error.message.split()[1])
    return None
