import json
from typing import Any

from ratoon.chat.answer_reader import UNREADABLE_CALL, AnswerReader
from ratoon.chat.reasoning import THINK
from ratoon.chat.tool_format import HERMES
from ratoon.engine.output import OutputDelta
from ratoon.server.generation.chat import ChatRequest, ChatTurn
from ratoon.server.generation.usage import ResponseUsage
from ratoon.server.openai.chat import ChatFormat
from ratoon.server.openai.format import Envelope, usage_body

TOKENS = {0: b"Hel", 1: b"lo", 2: "é".encode()[:1], 3: "é".encode()[1:]}
ENVELOPE = Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, num_top=1)
USAGE = ResponseUsage(prompt_tokens=5, cached_tokens=0, completion_tokens=2)


class Turn(ChatTurn):
    """Reads answers without having encoded a conversation."""

    def __init__(self) -> None:
        super().__init__(ChatRequest(messages=[]))

    def reader(self) -> AnswerReader:
        return AnswerReader(["add"], HERMES, THINK)


def chat_format(envelope: Envelope) -> ChatFormat:
    return ChatFormat(envelope, Turn())


def output(text: str, **fields: Any) -> OutputDelta:
    return OutputDelta(**{"request_id": 1, "index": 0, "text": text, "token_ids": [], **fields})


def events(data: bytes) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in data.decode().split("\n\n")[:-1]]


def test_a_chat_stream_names_the_role_then_the_text_then_the_end() -> None:
    form = chat_format(ENVELOPE)
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
    form = chat_format(ENVELOPE)
    chunks = events(b"".join(form.output(output("x", index=index)) for index in (1, 0, 1)))
    named = [chunk["choices"][0]["index"] for chunk in chunks if "role" in chunk["choices"][0]["delta"]]
    assert named == [1, 0]


def test_a_stream_that_reports_usage_has_it_null_until_the_last_chunk() -> None:
    form = chat_format(Envelope("id-1", "tiny", "fp_1", TOKENS.__getitem__, stream_usage=True))
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
    body: Any = chat_format(ENVELOPE).whole([part], USAGE)
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
    choices = chat_format(ENVELOPE).whole([output("hi", finish_reason="stop")], USAGE)["choices"]
    assert choices == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
    ]


CALLS = '<think>Hm</think>Yes.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def test_reasoning_and_calls_are_fields_of_the_message() -> None:
    body: Any = chat_format(ENVELOPE).whole([output(CALLS, finish_reason="stop")], USAGE)
    [choice] = body["choices"]
    [call] = choice["message"].pop("tool_calls")
    assert call["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert call["type"] == "function"
    assert choice["message"] == {
        "role": "assistant", "content": "Yes.", "refusal": None, "reasoning_content": "Hm"
    }  # fmt: skip
    assert choice["finish_reason"] == "tool_calls"


def test_a_stream_gives_calls_in_openais_order() -> None:
    form = chat_format(ENVELOPE)
    data = b"".join(form.output(output(character)) for character in CALLS)
    chunks = [chunk["choices"][0] for chunk in events(data + form.output(output("", finish_reason="stop")))]
    calls = [call for chunk in chunks for call in chunk["delta"].get("tool_calls", ())]
    first, *others = calls
    assert (first["index"], first["type"]) == (0, "function")
    assert first["id"].startswith("call_")
    assert first["function"] == {"name": "add", "arguments": ""}
    assert "".join(call["function"]["arguments"] for call in others) == '{"a": 1}'
    assert all(call.keys() == {"index", "function"} for call in others)
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "Yes."
    assert "".join(chunk["delta"].get("reasoning_content", "") for chunk in chunks) == "Hm"
    assert [chunk["finish_reason"] for chunk in chunks if chunk["finish_reason"]] == ["tool_calls"]


def test_an_unreadable_call_is_text_with_a_warning() -> None:
    text = "<tool_call>\nadd it\n</tool_call>"
    body: Any = chat_format(ENVELOPE).whole([output(text, finish_reason="stop")], USAGE)
    [choice] = body["choices"]
    assert choice["message"]["content"] == text
    assert (choice["finish_reason"], choice["warning"]) == ("stop", UNREADABLE_CALL)


def test_log_probabilities_of_text_that_is_held_back_are_not_lost() -> None:
    form = chat_format(ENVELOPE)
    chunks = events(form.output(output("<tool", token_ids=[0], logprobs=[{0: -0.5}])))
    assert chunks[-1]["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5
    assert chunks[-1]["choices"][0]["delta"] == {"content": ""}
