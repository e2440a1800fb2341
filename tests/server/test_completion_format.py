from ratoon.server.answer_format import Envelope, Part, usage_body
from ratoon.server.completion_format import CompletionFormat

TOKENS = {0: b"Hel", 1: b"lo", 2: "é".encode()[:1], 3: "é".encode()[1:]}
ENVELOPE = Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, num_top=1)
USAGE = usage_body(5, 0, 2)


def test_usage_always_tells_what_was_cached() -> None:
    assert USAGE == {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_whole_completion_has_openais_fields() -> None:
    body = CompletionFormat(ENVELOPE).whole([Part("a", finish_reason="stop"), Part("b")], USAGE)
    assert (body["id"], body["object"], body["model"], body["usage"]) == (
        "id-1",
        "text_completion",
        "tiny",
        USAGE,
    )
    assert body["choices"] == [
        {"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"},
        {"index": 1, "text": "b", "logprobs": None, "finish_reason": None},
    ]


def test_completion_logprobs_run_in_parallel_with_offsets_into_the_text() -> None:
    form = CompletionFormat(ENVELOPE)
    first = form.chunk(0, Part("Hel", [0], [((0, -0.5), (1, -1.0))]))
    second = form.chunk(0, Part("lo", [1], [((0, -0.25), (1, -2.0))]))
    assert [chunk["choices"][0]["logprobs"] for chunk in (first, second)] == [  # type: ignore[index]
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
    body = CompletionFormat(ENVELOPE).whole([Part("Hello", [0, 1], [None, ((1, -1.0),)])], USAGE)
    logprobs = body["choices"][0]["logprobs"]  # type: ignore[index]
    assert (logprobs["token_logprobs"], logprobs["top_logprobs"]) == ([None, -1.0], [None, {"lo": -1.0}])
