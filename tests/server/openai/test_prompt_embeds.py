"""Rows of input embeddings in `/v1/completions`, on a fake model whose answers depend on every bit."""

import base64
import hashlib
import io
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from ratoon.identity.digest import digest
from ratoon.server.http.limits import ServerLimits, TenantLimits
from ratoon.server.tenants import KeyRing, SaltDeriver, Tenant

ROWS = np.arange(30, dtype=np.float32).reshape(10, 3)
TOKENS = {"type": "token_ids", "token_ids": [5, 6, 7]}
TEXT = {"type": "text", "text": "ab"}


def npy(array: Any) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def part(array: Any) -> dict[str, str]:
    return {"type": "prompt_embeds", "data": npy(array)}


def ask(server: Any, **fields: Any) -> Any:
    body = {"temperature": 0, "max_tokens": 5, "ignore_eos": True, **fields}
    reply = server.post("/v1/completions", body)
    assert reply.status == 200, reply.body
    return reply.json


def texts(reply: Any) -> list[str]:
    return [choice["text"] for choice in reply["choices"]]


def cached(reply: Any) -> int:
    count: int = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


def test_rows_are_a_prompt_and_count_as_prompt_tokens(start_server: Any) -> None:
    server = start_server()
    cold = ask(server, prompt_embeds=npy(ROWS), include_cache_report=True)
    assert cold["usage"]["prompt_tokens"] == 10
    assert cold["usage"]["ratoon"]["computed_tokens"] == 10
    warm = ask(server, prompt_embeds=npy(ROWS))
    assert texts(warm) == texts(cold)
    assert (cached(cold), cached(warm)) == (0, 8)
    server.check_blocks()


def test_other_rows_share_nothing(start_server: Any) -> None:
    server = start_server()
    answers = [
        ask(server, prompt_embeds=npy(rows))
        for rows in (ROWS, ROWS[::-1], ROWS.astype(np.float16), ROWS[:9], np.roll(ROWS, 1, axis=0), ROWS + 1)
    ]
    assert [cached(answer) for answer in answers] == [0] * 6
    assert len({text for answer in answers for text in texts(answer)}) == 6
    assert cached(ask(server, prompt=[0] * 10)) == 0


def test_parts_may_be_mixed_in_any_order(start_server: Any) -> None:
    server = start_server()
    mixed = ask(server, prompt=[TEXT, part(ROWS[:3]), TOKENS, part(ROWS[3:])])
    assert mixed["usage"]["prompt_tokens"] == 2 + 3 + 3 + 7
    letters = {"type": "token_ids", "token_ids": list(b"ab")}
    again = ask(server, prompt=[letters, part(ROWS[:3]), TOKENS, part(ROWS[3:])])
    assert texts(again) == texts(mixed)
    assert (cached(mixed), cached(again)) == (0, 12)
    swapped = ask(server, prompt=[TEXT, part(ROWS[3:]), TOKENS, part(ROWS[:3])])
    assert texts(swapped) != texts(mixed)
    assert cached(swapped) == 0


def test_parts_without_rows_are_the_tokens_that_they_spell(server: Any) -> None:
    assert texts(ask(server, prompt=[TEXT, TOKENS])) == texts(ask(server, prompt=[*b"ab", 5, 6, 7]))


def test_several_prompts_are_answered_rows_first(server: Any) -> None:
    whole = ask(server, prompt=["text", [TEXT, part(ROWS)]], prompt_embeds=[npy(ROWS), npy(ROWS[1:])])
    alone = [
        ask(server, prompt_embeds=npy(ROWS)),
        ask(server, prompt="", prompt_embeds=npy(ROWS[1:])),
        ask(server, prompt="text"),
        ask(server, prompt=[TEXT, part(ROWS)]),
    ]
    assert texts(whole) == [text for reply in alone for text in texts(reply)]
    assert whole["usage"]["prompt_tokens"] == 10 + 9 + 4 + 12


def test_a_stream_says_the_same(server: Any) -> None:
    body = {"prompt_embeds": npy(ROWS), "temperature": 0, "max_tokens": 5, "ignore_eos": True}
    events = server.events("/v1/completions", body)
    assert "".join(event["choices"][0]["text"] for event in events) == texts(ask(server, **body))[0]


def test_n_answers_digest_a_part_once(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Mock(wraps=digest)
    monkeypatch.setattr("ratoon.request.input_rows.digest", counted)
    ask(server, prompt=[part(ROWS), TEXT, part(ROWS + 1)], n=3, temperature=1)
    assert counted.call_count == 2


def test_reading_and_writing_the_cache_can_be_forgone(start_server: Any) -> None:
    server = start_server()
    traceless = ask(server, prompt_embeds=npy(ROWS), cache={"write": False})
    cold = ask(server, prompt_embeds=npy(ROWS))
    afresh = ask(server, prompt_embeds=npy(ROWS), cache={"read": False})
    assert [cached(reply) for reply in (traceless, cold, afresh)] == [0, 0, 0]
    assert texts(traceless) == texts(cold) == texts(afresh)
    assert cached(ask(server, prompt_embeds=npy(ROWS))) == 8


def test_tenants_and_salts_part_equal_rows(start_server: Any) -> None:
    salts, limits = SaltDeriver(b"s" * 32), TenantLimits()
    tenants = {
        hashlib.sha256(name.encode()).digest(): Tenant(name, salts.tenant_scope(name), limits)
        for name in ("alice", "bob")
    }
    server = start_server(keys=KeyRing(tenants, ()))

    def cached_for(key: str, **fields: Any) -> int:
        body = {"prompt_embeds": npy(ROWS), "max_tokens": 1, **fields}
        return cached(server.post("/v1/completions", body, key=key).json)

    assert cached_for("alice") == 0
    assert cached_for("bob") == 0
    assert cached_for("alice", cache_salt="mine") == 0
    assert [cached_for(key) for key in ("alice", "bob")] == [8, 8]


def test_limits_count_rows(start_server: Any) -> None:
    server = start_server(max_model_len=12, tenant_limits=TenantLimits(max_prompt_tokens=11))
    reply = server.post("/v1/completions", {"prompt": [TEXT, part(ROWS)], "max_tokens": 1})
    assert (reply.status, reply.json["error"]["code"]) == (400, "context_length_exceeded")
    assert "12 tokens; the limit is 11" in reply.json["error"]["message"]
    assert server.post("/v1/completions", {"prompt_embeds": npy(ROWS), "max_tokens": 1}).status == 200


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"prompt_embeds": "!"}, "prompt_embeds", "must be base64"),
        ({"prompt_embeds": ""}, "prompt_embeds", "neither .npy nor .safetensors"),
        ({"prompt_embeds": [npy(ROWS), npy(ROWS.T.copy())]}, "prompt_embeds", "[n, 3]"),
        ({"prompt": [TEXT, part(np.full((1, 3), np.inf, np.float32))]}, "prompt_embeds", "NaN or infinity"),
        ({"prompt": [TEXT, {"type": "image"}]}, "prompt", "part 1"),
        ({"prompt": [TEXT, {"type": "text"}]}, "prompt", "part 1"),
        ({"prompt": [TEXT, "ab"]}, "prompt", "a list of parts"),
        ({"prompt_embeds": npy(ROWS), "echo": True}, None, "echo"),
        ({"prompt_embeds": 3}, "prompt_embeds", "list"),
        ({"prompt_embeds": []}, "prompt_embeds", "at least 1 item"),
        ({"prompt": [{"type": "token_ids", "token_ids": [999]}, part(ROWS)]}, None, "vocabulary"),
    ],
)
def test_what_holds_no_rows_is_refused_and_named(
    server: Any, body: dict[str, object], param: str | None, message: str
) -> None:
    reply = server.post("/v1/completions", body)
    assert reply.status == 400, reply.body
    error = reply.json["error"]
    assert error["code"] == "invalid_value"
    assert message in error["message"]
    assert error["param"] == param


def test_a_long_body_is_refused_before_it_is_decoded(start_server: Any) -> None:
    server = start_server(limits=ServerLimits(max_body_bytes=1000))
    reply = server.post("/v1/completions", {"prompt_embeds": npy(ROWS.repeat(100, axis=0))})
    assert (reply.status, reply.json["error"]["code"]) == (413, "body_too_large")


def test_the_log_of_prompts_has_their_texts(start_server: Any) -> None:
    server = start_server(log_prompts=True)
    ask(server, prompt=[TEXT, part(ROWS), {"type": "text", "text": "cd"}])
    server.wait_until_idle()
    assert "abcd" in server.log.getvalue()


def test_the_schema_describes_parts(server: Any) -> None:
    schemas = server.get("/openapi.json").json["components"]["schemas"]
    fields = schemas["CompletionBody"]["properties"]
    assert {option.get("type") for option in fields["prompt_embeds"]["anyOf"]} == {"string", "array", "null"}
    assert "#/components/schemas/EmbedsPart" in str(fields["prompt"])
    assert schemas["EmbedsPart"]["properties"]["type"]["const"] == "prompt_embeds"
    assert "prompt" not in schemas["CompletionBody"].get("required", [])
