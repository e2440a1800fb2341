"""OpenAI's endpoints over HTTP, on a fake model."""

import json
from typing import Any

import pytest

MESSAGES = [{"role": "user", "content": "hello"}]
HALF_A_CHARACTER = [{"role": "user", "content": "\ud800"}]


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "temperature": 0, "max_tokens": 5, **fields}


def test_a_completion_has_text_and_usage(server: Any) -> None:
    body = server.complete("hello there", max_tokens=5, ignore_eos=True)
    (choice,) = body["choices"]
    assert len(choice["text"]) == 5
    assert (choice["finish_reason"], choice["index"], choice["logprobs"]) == ("length", 0, None)
    assert body["usage"] == {
        "prompt_tokens": 11,
        "completion_tokens": 5,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert body["model"] == "fake"
    assert body["id"].startswith("cmpl-")


def test_the_same_prompt_again_is_cached_and_answered_the_same(server: Any) -> None:
    cold = server.complete("the same prompt again", max_tokens=8)
    warm = server.complete("the same prompt again", max_tokens=8)
    assert cold["choices"] == warm["choices"]
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == 20


def test_text_and_its_token_ids_are_the_same_prompt(server: Any) -> None:
    text = server.complete("tokens", max_tokens=4)
    ids = server.complete(list(b"tokens"), max_tokens=4)
    assert text["choices"] == ids["choices"]


def test_a_list_of_prompts_is_answered_in_order_n_answers_each(server: Any) -> None:
    prompts = ["first", "second"]
    body = server.complete(prompts, n=2, temperature=1, seed=7, max_tokens=4)
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    alone = [server.complete(prompt, n=2, temperature=1, seed=7, max_tokens=4) for prompt in prompts]
    texts = [choice["text"] for reply in alone for choice in reply["choices"]]
    assert [choice["text"] for choice in body["choices"]] == texts
    assert len(set(texts)) == 4
    assert body["usage"]["prompt_tokens"] == len("first") + len("second")


def test_a_seed_fixes_the_answer_and_no_seed_does_not(server: Any) -> None:
    seeded = [server.complete("seed", temperature=1, seed=3, max_tokens=9)["choices"] for _ in range(2)]
    assert seeded[0] == seeded[1]
    drawn = [
        server.complete("seed", temperature=1, max_tokens=9, ignore_eos=True)["choices"] for _ in range(2)
    ]
    assert drawn[0] != drawn[1]


def test_an_answer_ends_before_a_stop_string_and_its_blocks_come_back(server: Any) -> None:
    text = server.complete("stop", max_tokens=20, ignore_eos=True)["choices"][0]["text"]
    stop = text[7:9]
    body = server.complete("stop", max_tokens=20, ignore_eos=True, stop=["never this", stop])
    assert body["choices"][0]["text"] == text[: text.index(stop)]
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == text.index(stop) + 2
    server.check_blocks()


def test_echo_puts_the_prompt_first_with_its_logprobs(server: Any) -> None:
    body = server.complete("abc", max_tokens=2, echo=True, logprobs=1, ignore_eos=True)
    (choice,) = body["choices"]
    assert choice["text"].startswith("abc")
    assert len(choice["text"]) == 5
    logprobs = choice["logprobs"]
    assert logprobs["tokens"][:3] == ["a", "b", "c"]
    assert logprobs["token_logprobs"][0] is None
    assert logprobs["text_offset"] == [0, 1, 2, 3, 4]
    assert all(len(logprobs[name]) == 5 for name in ("tokens", "token_logprobs", "top_logprobs"))


def test_echo_with_no_output_scores_a_prompt(server: Any) -> None:
    body = server.complete("abc", max_tokens=0, echo=True, logprobs=0)
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("abc", "length")
    assert choice["logprobs"]["tokens"] == ["a", "b", "c"]
    assert body["usage"]["completion_tokens"] == 0


def test_a_stream_puts_together_to_the_whole_answer(server: Any) -> None:
    whole = server.complete("streamed", max_tokens=12, logprobs=1)
    events = server.events(
        "/v1/completions", {"prompt": "streamed", "temperature": 0, "max_tokens": 12, "logprobs": 1}
    )
    choices = [event["choices"][0] for event in events]
    assert "".join(choice["text"] for choice in choices) == whole["choices"][0]["text"]
    assert [choice["finish_reason"] for choice in choices[:-1]] == [None] * (len(choices) - 1)
    assert choices[-1]["finish_reason"] == whole["choices"][0]["finish_reason"]
    for name in ("tokens", "token_logprobs", "text_offset"):
        together = [value for choice in choices for value in choice["logprobs"][name]]
        assert together == whole["choices"][0]["logprobs"][name]
    assert all("usage" not in event for event in events)


def test_a_chat_stream_has_a_role_the_text_an_end_and_usage(server: Any) -> None:
    whole = server.post("/v1/chat/completions", chat()).json
    *events, last = server.events("/v1/chat/completions", chat(stream_options={"include_usage": True}))
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == whole["choices"][0]["message"]["content"]
    assert all(event["usage"] is None for event in events)
    assert last["choices"] == []
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == 20
    assert len({event["id"] for event in [*events, last]}) == 1


def test_streams_of_several_answers_are_told_apart_by_index(server: Any) -> None:
    fields = {"n": 3, "temperature": 1, "seed": 5, "max_tokens": 6}
    whole = server.post("/v1/chat/completions", chat(**fields)).json
    texts = ["", "", ""]
    for event in server.events("/v1/chat/completions", chat(**fields)):
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == [choice["message"]["content"] for choice in whole["choices"]]


def test_chat_logprobs_name_each_token(server: Any) -> None:
    body = server.post("/v1/chat/completions", chat(logprobs=True, top_logprobs=2, ignore_eos=True)).json
    content = body["choices"][0]["logprobs"]["content"]
    assert "".join(entry["token"] for entry in content) == body["choices"][0]["message"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * 5


def test_the_template_gets_tools_kwargs_and_the_generation_prompt(server: Any) -> None:
    def prompt(**fields: Any) -> str:
        tokens = server.post("/tokenize", {"messages": MESSAGES, **fields}).json["tokens"]
        text: str = server.post("/detokenize", {"tokens": tokens}).json["prompt"]
        return text

    assert prompt() == "[user]hello<|end|>[assistant]"
    assert prompt(add_generation_prompt=False) == "[user]hello<|end|>"
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert prompt(tools=[tool]) == f"[user]hello<|end|>{json.dumps([tool])}[assistant]"
    assert prompt(chat_template_kwargs={"note": "!"}) == "[user]hello<|end|>![assistant]"
    assert prompt(continue_final_message=True) == "[user]hello"


def test_a_continued_final_message_is_echoed_on_request(server: Any) -> None:
    messages = [*MESSAGES, {"role": "assistant", "content": "It was "}]
    fields = {"messages": messages, "continue_final_message": True}
    plain = server.post("/v1/chat/completions", chat(**fields)).json["choices"][0]["message"]["content"]
    echoed = server.post("/v1/chat/completions", chat(**fields, echo=True)).json["choices"][0]["message"][
        "content"
    ]
    assert echoed == "It was " + plain


def test_control_tokens_written_by_users_stay_text(server: Any) -> None:
    messages = [{"role": "user", "content": "a<|end|>b"}]
    tokens = server.post("/tokenize", {"messages": messages}).json["tokens"]
    assert tokens.count(256) == 1


def test_output_that_is_not_utf8_is_replaced_and_never_half_sent(server: Any) -> None:
    fields = {"prompt": "é", "max_tokens": 3, "temperature": 0, "logit_bias": {"195": 100}}
    events = server.events("/v1/completions", {**fields, "return_token_ids": True})
    assert [token for event in events for token in event["choices"][0]["token_ids"]] == [195] * 3
    assert "".join(event["choices"][0]["text"] for event in events) == "�" * 3


def test_ratoon_reports_what_was_cached_computed_and_committed(server: Any) -> None:
    def report(**fields: Any) -> Any:
        body = server.complete(
            "a prompt to report about", max_tokens=6, ignore_eos=True, include_cache_report=True, **fields
        )
        return body["usage"]["ratoon"]

    cold, warm = report(), report()
    assert (cold["cached_tokens"], cold["computed_tokens"]) == (0, 24)
    assert cold["committed_tokens"] == 28  # 24 + 6 tokens, of which the last is never computed
    assert (warm["cached_tokens"], warm["computed_tokens"], warm["committed_tokens"]) == (23, 1, 28)
    assert cold["limited_by"] == "full attention: the next block was not cached"
    assert warm["limited_by"] == "nothing: every full block was cached"
    assert 0 <= warm["queue_s"] <= warm["ttft_s"]


def test_a_stream_that_was_asked_for_a_report_ends_with_it(server: Any) -> None:
    *_, last = server.events("/v1/chat/completions", chat(include_cache_report=True))
    report = last["usage"]["ratoon"]
    assert report["cached_tokens"] + report["computed_tokens"] == last["usage"]["prompt_tokens"]


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_token_ids_are_told_to_who_asks(server: Any, path: str) -> None:
    fields = {
        "prompt": "which ids?",
        "messages": [{"role": "user", "content": "which ids?"}],
        "max_tokens": 4,
    }
    fields |= {"return_token_ids": True, "ignore_eos": True, "temperature": 0}
    (choice,) = server.post(f"/v1/{path}", fields).json["choices"]
    events = server.events(f"/v1/{path}", fields)

    assert len(choice["token_ids"]) == 4
    choices = [choice for event in events for choice in event["choices"]]
    streamed = [token_id for part in choices for token_id in part.get("token_ids", ())]
    assert streamed == choice["token_ids"]


def test_several_answers_count_their_prompt_once_and_report_all_of_it(server: Any) -> None:
    body = server.complete("counted once or twice", n=2, max_tokens=1, include_cache_report=True)
    assert body["usage"]["prompt_tokens"] == 21
    report = body["usage"]["ratoon"]
    assert report["cached_tokens"] + report["computed_tokens"] == 42


def test_a_request_that_may_not_read_computes_afresh_and_commits(server: Any) -> None:
    fields = {"max_tokens": 2, "include_cache_report": True, "ignore_eos": True}
    first = server.complete("read afresh please", **fields)
    again = server.complete("read afresh please", cache={"read": False}, **fields)
    assert again["choices"] == first["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert again["usage"]["ratoon"]["committed_tokens"] == 16
    assert again["usage"]["ratoon"]["limited_by"] == "the request: it does not read the cache"


def test_a_request_that_may_not_write_leaves_no_trace(server: Any) -> None:
    fields = {"max_tokens": 2, "include_cache_report": True, "ignore_eos": True}
    keys = server.get("/cache/stats", key="root").json["num_keys"]
    untraced = server.complete("leave no trace here", cache={"write": False}, **fields)
    assert untraced["usage"]["ratoon"]["committed_tokens"] == 0
    assert server.get("/cache/stats", key="root").json["num_keys"] == keys
    after = server.complete("leave no trace here", **fields)
    assert after["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert after["choices"] == untraced["choices"]


def test_a_cache_salt_narrows_sharing(server: Any) -> None:
    def cached(**fields: Any) -> int:
        body = server.complete("a salted prompt of mine", max_tokens=1, **fields)
        tokens: int = body["usage"]["prompt_tokens_details"]["cached_tokens"]
        return tokens

    salts = [None, None, "x", "x", "y", None]
    assert [cached(cache_salt=salt) for salt in salts] == [0, 20, 0, 20, 0, 20]


def test_unknown_fields_are_ignored_with_a_warning(server: Any) -> None:
    body = {"prompt": "x", "max_tokens": 1, "temprature": 0, "cache": {"reed": 1}}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200
    assert reply.headers["warning"] == '299 ratoon "ignored unknown fields: temprature, cache.reed"'
    assert "warning" not in server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).headers


def test_a_warning_is_a_header_whatever_the_field_is_called(server: Any) -> None:
    body = {"prompt": "x", "max_tokens": 1, "a\r\nSet-Cookie: b": 1, "é\u2028": 2, "q" * 5000: 3}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200
    assert "set-cookie" not in reply.headers


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("/v1/completions", {"prompt": ""}, 400, "empty_prompt", None),
        ("/v1/completions", {}, 400, "invalid_value", "prompt"),
        ("/v1/completions", {"prompt": "x", "max_tokens": "5"}, 400, "invalid_value", "max_tokens"),
        ("/v1/completions", {"prompt": "x", "top_p": 2}, 400, "invalid_value", None),
        ("/v1/completions", {"prompt": "x", "model": "other"}, 404, "model_not_found", "model"),
        ("/v1/completions", {"prompt": [300]}, 400, "invalid_value", None),
        ("/v1/completions", {"prompt": [-1]}, 400, "invalid_value", None),
        ("/v1/completions", {"prompt": "x", "logit_bias": {"999": 1}}, 400, "invalid_value", None),
        ("/v1/completions", {"prompt": "x" * 256}, 400, "context_length_exceeded", None),
        ("/v1/completions", {"prompt": "x", "n": 1000}, 400, "invalid_value", None),
        ("/v1/completions", {"prompt": "x", "n": 0}, 400, "invalid_value", None),
        ("/v1/completions", {"prompt": "x", "n": -3}, 400, "invalid_value", None),
        ("/v1/completions", [], 400, "invalid_json", None),
        ("/v1/chat/completions", {"messages": []}, 400, "invalid_value", "messages"),
        ("/v1/chat/completions", {"messages": HALF_A_CHARACTER}, 400, "invalid_text", None),
        ("/v1/completions", {"prompt": "x", "response_format": {}}, 400, "invalid_value", "response_format"),
        ("/detokenize", {"tokens": [257]}, 400, "invalid_value", "tokens"),
        ("/detokenize", {"tokens": [-1]}, 400, "invalid_value", "tokens"),
        ("/nowhere", {}, 404, "not_found", None),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused_in_openais_shape(
    server: Any, path: str, body: object, status: int, code: str, param: str | None
) -> None:
    reply = server.post(path, body)
    assert reply.status == status, reply.body
    error = reply.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert error["message"].endswith(".")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"prompt": ' + b"[" * 100_000,
        b'{"prompt": 1' + b"0" * 5000 + b"}",
        b"\xff\xfe",
    ],
)
def test_what_is_not_json_is_refused_in_openais_shape(server: Any, raw: bytes) -> None:
    reply = server.post("/v1/completions", None, raw=raw)
    assert reply.status == 400
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}


def test_a_wrong_method_is_refused_in_openais_shape(server: Any) -> None:
    reply = server.get("/v1/completions")
    assert reply.status == 405
    assert reply.json["error"]["code"] == "method_not_allowed"


def test_the_model_is_listed_and_described(server: Any) -> None:
    (card,) = server.get("/v1/models").json["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("fake", "model", 256)
    assert server.get("/v1/models/fake").json == card
    assert server.get("/v1/models/other").status == 404


def test_tokens_and_text_turn_into_each_other(server: Any) -> None:
    tokens = server.post("/tokenize", {"prompt": "héllo<|end|>"}).json
    assert tokens == {"count": 7, "max_model_len": 256, "tokens": [*"héllo".encode(), 256]}
    assert server.post("/detokenize", {"tokens": tokens["tokens"]}).json == {"prompt": "héllo<|end|>"}


def test_a_model_without_a_template_says_so(start_server: Any) -> None:
    broken = start_server(template="{{ raise_exception('no chat here') }}")
    reply = broken.post("/v1/chat/completions", chat())
    assert reply.status == 400
    assert "no chat here" in reply.json["error"]["message"]
    assert broken.complete("hello", max_tokens=1)


def test_openapi_describes_every_endpoint(server: Any) -> None:
    paths = json.loads(server.get("/openapi.json").body)["paths"]
    assert {"/v1/completions", "/v1/chat/completions", "/tokenize", "/health", "/cache/stats"} <= set(paths)
