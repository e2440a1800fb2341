import json
from typing import Any

from ratoon.engine.output import OutputDelta
from ratoon.server.generation.usage import CacheReport, ResponseUsage
from ratoon.server.openai.completions import CompletionFormat
from ratoon.server.openai.format import Envelope, usage_body

TOKENS = {0: b"Hel", 1: b"lo", 2: "é".encode()[:1], 3: "é".encode()[1:]}
ENVELOPE = Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, num_top=1)
USAGE = ResponseUsage(prompt_tokens=5, cached_tokens=0, completion_tokens=2)


def output(text: str, **fields: Any) -> OutputDelta:
    return OutputDelta(**{"request_id": 1, "index": 0, "text": text, "token_ids": [], **fields})


def test_usage_always_tells_what_was_cached() -> None:
    assert usage_body(USAGE) == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_usage_has_the_cache_report_where_there_is_one() -> None:
    numbers = {name: number for number, name in enumerate(CacheReport.__dataclass_fields__)}
    usage = ResponseUsage(
        prompt_tokens=5,
        cached_tokens=0,
        completion_tokens=2,
        report=CacheReport(**numbers),  # type: ignore[arg-type]
    )
    assert usage_body(usage)["ratoon"] == numbers


def test_a_whole_completion_has_openais_fields() -> None:
    body = CompletionFormat(ENVELOPE).whole([output("a", finish_reason="stop"), output("b", index=1)], USAGE)
    assert (body["id"], body["object"], body["model"], body["usage"]) == (
        "id-1",
        "text_completion",
        "tiny",
        usage_body(USAGE),
    )
    assert body["choices"] == [
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"},
        {"index": 1, "text": "b", "logprobs": None, "finish_reason": None},
    ]


def test_completion_logprobs_run_in_parallel_with_offsets_into_the_text() -> None:
    form = CompletionFormat(ENVELOPE)
    first = form.output(output("Hel", token_ids=[0], logprobs=[{0: -0.5, 1: -1.0}]))
    second = form.output(output("lo", token_ids=[1], logprobs=[{0: -0.25, 1: -2.0}]))
    chunks = [json.loads(data.removeprefix(b"data: ")) for data in (first, second)]
    assert [chunk["choices"][0]["logprobs"] for chunk in chunks] == [
        {
            "tokens": ["Hel"],
            "token_logprobs": [-0.5],
            "top_logprobs": [{"Hel": -0.5, "lo": -1.0}],
            "text_offset": [0],
        },
        {
            "tokens": ["lo"],
            "token_logprobs": [-2.0],
            "top_logprobs": [{"Hel": -0.25, "lo": -2.0}],
            "text_offset": [3],
        },
    ]


def test_the_first_prompt_token_has_no_logprob() -> None:
    body: Any = CompletionFormat(ENVELOPE).whole(
        [output("Hello", token_ids=[0, 1], logprobs=[{}, {1: -1.0}])], USAGE
    )
    logprobs = body["choices"][0]["logprobs"]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == ([None, -1.0], [None, {"lo": -1.0}])
