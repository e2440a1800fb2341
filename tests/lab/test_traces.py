import json
from pathlib import Path

import pytest

from ratoon.errors import UsageError
from ratoon.lab.token_source import TokenSource
from ratoon.lab.traces import BLOCK_TOKENS, HashedPrompt, read_trace

MOONCAKE = Path(__file__).with_name("mooncake_excerpt.jsonl")
SOURCE = TokenSource(0, range(100, 400))


def write(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_a_mooncake_trace_is_read() -> None:
    requests = read_trace(MOONCAKE, most=1_000)

    assert len(requests) == 60
    first = requests[0]
    assert first.prompt == HashedPrompt(6_758, tuple(range(14)))
    assert (first.at_s, first.output) == (0.0, 500)
    times = [request.at_s for request in requests if request.at_s is not None]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(json.loads(MOONCAKE.read_text().splitlines()[-1])["timestamp"] / 1e3)


def test_no_more_requests_are_read_than_wanted() -> None:
    assert len(read_trace(MOONCAKE, most=7)) == 7


def test_equal_hash_ids_become_equal_tokens_and_others_do_not() -> None:
    a = HashedPrompt(1_100, (0, 1, 2)).tokens(SOURCE, 1.0)
    b = HashedPrompt(1_300, (0, 1, 3)).tokens(SOURCE, 1.0)

    assert (len(a), len(b)) == (1_100, 1_300)
    assert a[: 2 * BLOCK_TOKENS] == b[: 2 * BLOCK_TOKENS]
    assert a[2 * BLOCK_TOKENS :] != b[2 * BLOCK_TOKENS : 1_100]


@pytest.mark.parametrize(("scale", "block"), [(1 / 32, 16), (1 / 8, 64), (2.0, 1_024)])
def test_a_scaled_prompt_shares_scaled_blocks(scale: float, block: int) -> None:
    a = HashedPrompt(1_536, (0, 1, 2)).tokens(SOURCE, scale)
    b = HashedPrompt(1_536, (0, 1, 5)).tokens(SOURCE, scale)
    common = next(index for index, (left, right) in enumerate(zip(a, b, strict=True)) if left != right)

    assert len(a) == 3 * block
    assert common - 2 * block in range(3)  # by chance the next token or two may be equal


def test_a_prompt_is_never_scaled_to_nothing() -> None:
    assert len(HashedPrompt(3, (0,)).tokens(SOURCE, 1e-6)) == 1


def test_every_answer_of_a_transcript_becomes_a_request(tmp_path: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Good day."},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "Farewell."},
    ]
    bare, stamped = messages, {"messages": messages, "timestamp": 12.5}

    requests = read_trace(write(tmp_path / "chat.jsonl", bare, stamped), most=10)

    assert [request.prompt for request in requests[:2]] == [messages[:2], messages[:4]]
    assert [request.output for request in requests[:2]] == ["Good day.", "Farewell."]
    assert [request.session for request in requests] == ["1", "1", "2", "2"]
    assert [request.at_s for request in requests] == [None, None, 0.0, 0.0]


def test_an_agents_calls_keep_their_session_and_times(tmp_path: Path) -> None:
    calls = [
        {"timestamp": 5_000_000, "input": "Look.", "output": "ls", "session_id": "s"},
        {"timestamp": 7_500_000, "input": "Look. ls: a b", "output": "cat a", "session_id": "s"},
    ]

    requests = read_trace(write(tmp_path / "agent.jsonl", *calls), most=10)

    assert [(request.session, request.at_s) for request in requests] == [("s", 0.0), ("s", 2.5)]
    assert requests[1].prompt == "Look. ls: a b"


@pytest.mark.parametrize(
    "record",
    [
        {"timestamp": 0, "input_length": 1_000, "output_length": 5, "hash_ids": [1]},  # two blocks, one id
        {"timestamp": 0, "output_length": 5, "hash_ids": [1]},
        [{"role": "user", "content": "never answered"}],
        {"messages": "not a list"},
        {"something": "else"},
        17,
    ],
)
def test_a_record_of_no_known_kind_is_refused_with_its_line(tmp_path: Path, record: object) -> None:
    good = {"timestamp": 0, "input_length": 10, "output_length": 5, "hash_ids": [1]}

    with pytest.raises(UsageError, match="line 2 is neither"):
        read_trace(write(tmp_path / "trace.jsonl", good, record), most=10)


def test_what_is_not_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text("timestamp,input_length\n")

    with pytest.raises(UsageError, match="not JSON lines"):
        read_trace(path, most=10)


def test_an_empty_or_missing_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no request"):
        read_trace(write(tmp_path / "empty.jsonl"), most=10)
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(tmp_path / "missing.jsonl", most=10)
