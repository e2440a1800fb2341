"""What a caller is told about its misses, in its usage and by `/cache/explain`, and what it is never told."""

import json
from pathlib import Path
from typing import Any

import pytest

from ratoon.server.http.limits import TenantLimits
from ratoon.server.tenants import KeyRing, SaltDeriver, read_key_file
from tests.support.fake_server import FakeServer, ServerMaker

SECRET = "the melon patch behind the barn"
KEY_FILE = """
[tenants.alice]
keys = ["sha256:{alice}"]
shared_group = "farm"
[tenants.bob]
keys = ["sha256:{bob}"]
shared_group = "farm"
[tenants.carol]
keys = ["sha256:{carol}"]
"""


@pytest.fixture
def server(start_server: ServerMaker) -> FakeServer:
    return start_server(num_ghosts=1000)


def ring(tmp_path: Path) -> KeyRing:
    from hashlib import sha256

    names = ("alice", "bob", "carol")
    path = tmp_path / "keys.toml"
    path.write_text(KEY_FILE.format(**{name: sha256(name.encode()).hexdigest() for name in names}))
    return read_key_file(path, SaltDeriver(b"s" * 32), TenantLimits())


def explained(server: FakeServer, prompt: object, **fields: Any) -> Any:
    return server.complete(prompt, max_tokens=2, explain_cache=True, **fields)["usage"]["ratoon"]["explain"]


def asked(server: FakeServer, key: str | None = None, **body: Any) -> Any:
    reply = server.post("/cache/explain", body, key=key)
    assert reply.status == 200, reply.body
    return reply.json


def test_usage_explains_a_divergence_with_the_caller_s_own_text(server: FakeServer) -> None:
    server.complete("It is Monday. Water the roses.", max_tokens=2)
    found = explained(server, "It is Tuesday. Water the roses.")
    assert (found["reason"], found["cached_tokens"]) == ("diverged", 4)
    relative = found["relative"]
    assert (relative["common_tokens"], relative["before"]) == (6, "It is ")
    assert relative["own"].startswith("Tuesda")
    assert relative["other"] == "Mo"
    assert found["where"] == {"message": 0, "role": "text", "offset": 6}


def test_a_chat_s_divergence_names_the_message_and_the_place_in_it(server: FakeServer) -> None:
    def chat(day: str) -> Any:
        messages = [
            {"role": "system", "content": f"You garden. It is {day}."},
            {"role": "user", "content": "Hi"},
        ]
        reply = server.post(
            "/v1/chat/completions", {"messages": messages, "max_tokens": 2, "explain_cache": True}
        )
        return reply.json["usage"]["ratoon"]["explain"]

    assert chat("Monday")["reason"] == "never_seen"
    found = chat("Friday")
    assert found["reason"] == "diverged"
    assert found["where"] == {"message": 0, "role": "system", "offset": 18}


def test_a_stream_ends_with_the_explanation(server: FakeServer) -> None:
    events = server.events("/v1/completions", {"prompt": "abcdefgh", "max_tokens": 2, "explain_cache": True})
    assert events[-1]["usage"]["ratoon"]["explain"]["reason"] == "never_seen"


def test_what_is_not_asked_for_is_not_told(server: FakeServer) -> None:
    assert "ratoon" not in server.complete("abcdefgh", max_tokens=2)["usage"]
    report = server.complete("abcdefgh", max_tokens=2, include_cache_report=True)["usage"]["ratoon"]
    assert "explain" not in report


def test_the_endpoint_explains_without_running(server: FakeServer) -> None:
    server.complete("The pruning begins in March.", max_tokens=2)
    found = asked(server, prompt="The pruning begins in April.")
    assert (found["reason"], found["cached_tokens"]) == ("diverged", 20)
    assert asked(server, prompt="The pruning begins in April.") | {"relative": 0} == found | {"relative": 0}
    assert (
        server.metrics()['ratoon_requests_total{outcome="length"}']
        + server.metrics()['ratoon_requests_total{outcome="stop"}']
        == 1
    )


def test_the_endpoint_takes_messages_and_salts(server: FakeServer) -> None:
    messages = [{"role": "user", "content": "What grows back after the cut?"}]
    server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 2, "cache_salt": "x"})
    assert asked(server, messages=messages, cache_salt="x")["cached_tokens"] > 20
    found = asked(server, messages=messages)
    assert (found["reason"], found["cached_tokens"]) == ("salt", 0)
    assert "relative" in found


@pytest.mark.parametrize(
    "body", [{}, {"prompt": ""}, {"messages": []}, {"prompt": "x" * 300}, {"prompt": [9999]}]
)
def test_a_prompt_that_could_not_be_served_is_not_explained(server: FakeServer, body: Any) -> None:
    assert server.post("/cache/explain", body).status == 400


def test_a_server_that_remembers_nothing_says_so(start_server: ServerMaker) -> None:
    server = start_server()
    assert explained(server, "abcdefgh")["reason"] == "unknown"
    assert "--explain-blocks" in asked(server, prompt="abcdefgh")["message"]


def test_an_eviction_is_told_with_its_pressure_as_a_class(start_server: ServerMaker) -> None:
    server = start_server(num_ghosts=1000, num_blocks=12)
    server.complete("a" * 30, max_tokens=2)
    server.complete("b" * 30, max_tokens=2)
    found = explained(server, "a" * 30)
    assert found["reason"] == "evicted"
    assert found["eviction"]["pressure"] == "own"


@pytest.mark.parametrize("stranger", ["bob", "carol"])
def test_nothing_of_one_tenant_s_text_reaches_another(
    start_server: ServerMaker, tmp_path: Path, stranger: str
) -> None:
    server = start_server(num_ghosts=1000, keys=ring(tmp_path))
    prompt = f"Begin here: {SECRET}, and on."
    own = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "explain_cache": True}
    assert server.post("/v1/completions", own, key="alice").status == 200
    for guess in ("Begin here: ", "Begin here: the melon", "Begin here: the m", prompt[:-1] + "!", prompt):
        told = asked(server, stranger, prompt=guess)
        assert "relative" not in told
        assert "eviction" not in told
        # The group's shared blocks are a hit, as they always were; nothing but their number is told.
        assert told["reason"] in ("never_seen", "below_one_block", "only_last_token")
        assert SECRET[8:] not in json.dumps(told)
        assert asked(server, "alice", prompt=guess)["reason"] != "never_seen" or len(guess) < 14


def test_reasons_in_a_shared_group_know_only_what_the_caller_sent(
    start_server: ServerMaker, tmp_path: Path
) -> None:
    server = start_server(num_ghosts=1000, keys=ring(tmp_path))
    body: dict[str, Any] = {"prompt": "We share this beginning and more.", "max_tokens": 2}
    for name in ("alice", "bob"):
        assert server.post("/v1/completions", body, key=name).status == 200
    found = asked(server, "bob", prompt="We share this beginning and less.")
    assert found["reason"] == "diverged"
    assert found["relative"]["other"] in body["prompt"]
