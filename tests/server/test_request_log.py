import io
import json

from ratoon.server.request_log import Outcome, RequestLog, RequestRecord


def written(*, as_json: bool, prompt: str | None = None, ttft_s: float | None = 0.25) -> str:
    stream = io.StringIO()
    record = RequestRecord(
        request_id="cmpl-1",
        tenant="alice",
        endpoint="completions",
        outcome=Outcome.STOP,
        num_answers=1,
        prompt_tokens=40,
        cached_tokens=32,
        output_tokens=7,
        queue_s=0.001,
        ttft_s=ttft_s,
        e2e_s=1.5,
        prompt=prompt,
    )
    RequestLog(stream, as_json=as_json).write(record)
    return stream.getvalue()


def test_a_line_for_people_names_who_what_and_how_long() -> None:
    line = written(as_json=False)
    assert line.count("\n") == 1
    assert line.split(maxsplit=1)[1] == (
        "cmpl-1 alice completions prompt=40 cached=32 output=7 ttft=0.250s e2e=1.500s stop\n"
    )


def test_a_request_that_never_got_a_token_has_no_ttft() -> None:
    assert "ttft=- " in written(as_json=False, ttft_s=None)
    assert json.loads(written(as_json=True, ttft_s=None))["ttft_s"] is None


def test_a_json_line_has_the_same_numbers() -> None:
    entry = json.loads(written(as_json=True))
    assert entry.pop("time") > 0
    assert entry == {
        "request_id": "cmpl-1",
        "tenant": "alice",
        "endpoint": "completions",
        "outcome": "stop",
        "num_answers": 1,
        "prompt_tokens": 40,
        "cached_tokens": 32,
        "output_tokens": 7,
        "queue_s": 0.001,
        "ttft_s": 0.25,
        "e2e_s": 1.5,
    }


def test_a_prompt_is_written_on_one_line_if_it_is_written_at_all() -> None:
    assert written(as_json=False, prompt="two\nlines").endswith('stop "two\\nlines"\n')
    assert json.loads(written(as_json=True, prompt="two\nlines"))["prompt"] == "two\nlines"
