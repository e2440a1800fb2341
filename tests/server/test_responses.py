import json

from ratoon.server.responses import ChatFormat, CompletionFormat, Envelope, Part, usage_body

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


def test_a_chat_stream_names_the_role_then_the_text_then_the_end() -> None:
    form = ChatFormat(ENVELOPE)
    chunks = [*form.opening(0), form.chunk(0, Part("Hel")), form.chunk(0, Part("", finish_reason="length"))]
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [  # type: ignore[index]
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {},
    ]
    assert all(chunk["object"] == "chat.completion.chunk" and "usage" not in chunk for chunk in chunks)


def test_a_stream_that_reports_usage_has_it_null_until_the_last_chunk() -> None:
    form = ChatFormat(Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, stream_usage=True))
    assert form.chunk(0, Part("x"))["usage"] is None
    last = form.usage_chunk(USAGE)
    assert (last["choices"], last["usage"]) == ([], USAGE)


def test_chat_logprobs_carry_the_bytes_of_half_a_character() -> None:
    part = Part("é", [2, 3], [((2, -0.5), (0, -2.0)), ((0, -0.1), (3, float("-inf")))], "stop")
    body = ChatFormat(ENVELOPE).whole([part], USAGE)
    content = body["choices"][0]["logprobs"]["content"]  # type: ignore[index]
    assert content[0] == {
        "token": "�",
        "logprob": -0.5,
        "bytes": [0xC3],
        "top_logprobs": [{"token": "�", "logprob": -0.5, "bytes": [0xC3]}],
    }
    assert content[1]["logprob"] == -9999.0
    assert [entry["token"] for entry in content[1]["top_logprobs"]] == ["Hel"]
    json.dumps(body, allow_nan=False)


def test_a_whole_chat_answer_is_a_message() -> None:
    choices = ChatFormat(ENVELOPE).whole([Part("hi", finish_reason="stop")], USAGE)["choices"]
    assert choices == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
