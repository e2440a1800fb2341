import json

from ratoon.server.answer_format import Envelope, Part, usage_body
from ratoon.server.chat_format import ChatFormat

TOKENS = {0: b"Hel", 1: b"lo", 2: "é".encode()[:1], 3: "é".encode()[1:]}
ENVELOPE = Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, num_top=1)
USAGE = usage_body(5, 0, 2)


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
