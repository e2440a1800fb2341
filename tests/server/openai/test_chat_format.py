import json
from typing import Any

from ratoon.engine.output import OutputDelta
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.openai.chat import ChatFormat
from ratoon.server.openai.format import Envelope, usage_body

TOKENS = {0: b"Hel", 1: b"lo", 2: "é".encode()[:1], 3: "é".encode()[1:]}
ENVELOPE = Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, num_top=1)
USAGE = ResponseUsage(prompt_tokens=5, cached_tokens=0, completion_tokens=2)


def output(text: str, **fields: Any) -> OutputDelta:
    return OutputDelta(**{"request_id": 1, "index": 0, "text": text, "token_ids": [], **fields})


def events(data: bytes) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n\n")[:-1]]


def test_a_chat_stream_names_the_role_then_the_text_then_the_end() -> None:
    form = ChatFormat(ENVELOPE)
    assert form.begin(USAGE) == b""
    chunks = events(form.output(output("Hel")) + form.output(output("", finish_reason="length")))
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {},
    ]
    assert all(chunk["object"] == "chat.completion.chunk" and "usage" not in chunk for chunk in chunks)
    assert form.end(USAGE) == b"data: [DONE]\n\n"


def test_every_choice_of_a_stream_names_its_role_once() -> None:
    form = ChatFormat(ENVELOPE)
    chunks = events(b"".join(form.output(output("x", index=index)) for index in (1, 0, 1)))
    named = [chunk["choices"][0]["index"] for chunk in chunks if "role" in chunk["choices"][0]["delta"]]
    assert named == [1, 0]


def test_a_stream_that_reports_usage_has_it_null_until_the_last_chunk() -> None:
    form = ChatFormat(Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, stream_usage=True))
    assert [chunk["usage"] for chunk in events(form.output(output("x")))] == [None, None]
    usage, done = form.end(USAGE).split(b"\n\n")[:2]
    last = json.loads(usage.removeprefix(b"data: "))
    assert (last["choices"], last["usage"]) == ([], usage_body(USAGE))
    assert done == b"data: [DONE]"


def test_chat_logprobs_carry_the_bytes_of_half_a_character() -> None:
    part = output(
        "é",
        token_ids=[2, 3],
        logprobs=[{2: -0.5, 0: -2.0}, {0: -0.1, 3: float("-inf")}],
        finish_reason="stop",
    )
    body: Any = ChatFormat(ENVELOPE).whole([part], USAGE)
    content = body["choices"][0]["logprobs"]["content"]
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
    choices = ChatFormat(ENVELOPE).whole([output("hi", finish_reason="stop")], USAGE)["choices"]
    assert choices == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
