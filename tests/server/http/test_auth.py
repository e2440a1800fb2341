"""Keys, tenants and body size over HTTP, on a fake model."""

import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest

from ratoon.server.http.limits import ServerLimits, TenantLimits
from ratoon.server.tenants import KeyRing, SaltDeriver, read_key_file

OPEN_PATHS = ["/health", "/ready", "/version", "/metrics", "/openapi.json"]
PROMPT = {"prompt": "a prompt of twenty-six..", "max_tokens": 1, "temperature": 0}


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    def entry(key: str) -> str:
        return f'keys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n'

    path = tmp_path / "keys.toml"
    path.write_text(
        f"[admin]\n{entry('root')}[tenants.a]\n{entry('key-a')}[tenants.b]\n{entry('key-b')}"
        f"[tenants.c]\nshared_group = 'g'\n{entry('key-c')}[tenants.d]\nshared_group = 'g'\n{entry('key-d')}"
    )
    return read_key_file(path, SaltDeriver(b"s" * 32), TenantLimits())


def cached(server: Any, key: str, **fields: Any) -> int:
    reply = server.post("/v1/completions", {**PROMPT, **fields}, key=key)
    tokens: int = reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def test_without_a_key_only_probes_are_answered(start_server: Any, keys: KeyRing) -> None:
    server = start_server(keys=keys)
    assert [server.get(path).status for path in OPEN_PATHS] == [200] * len(OPEN_PATHS)
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/nowhere"):
        reply = server.post(path, PROMPT)
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert reply.json["error"]["code"] == "invalid_api_key"
    assert server.post("/v1/completions", PROMPT, key="wrong").status == 401
    assert server.post("/v1/completions", PROMPT, key="key-a").status == 200


def test_the_admin_key_opens_the_cache_and_nothing_else_does(start_server: Any, keys: KeyRing) -> None:
    server = start_server(keys=keys)
    assert [server.get("/cache/stats", key=key).status for key in (None, "key-a", "root")] == [401, 403, 200]
    assert server.post("/v1/completions", PROMPT, key="root").status == 401


def test_tenants_do_not_share_whatever_salt_they_send(start_server: Any, keys: KeyRing) -> None:
    server = start_server(keys=keys)
    assert [cached(server, "key-a"), cached(server, "key-a")] == [0, 23]
    salts = ["a", "\0", "default", keys.tenants[hashlib.sha256(b"key-a").digest()].scope.hex()]
    assert [cached(server, "key-b"), *(cached(server, "key-b", cache_salt=salt) for salt in salts)] == [0] * 5


def test_tenants_of_a_group_share(start_server: Any, keys: KeyRing) -> None:
    server = start_server(keys=keys)
    assert [cached(server, "key-c"), cached(server, "key-d"), cached(server, "key-a")] == [0, 23, 0]


def test_keys_never_reach_the_log(start_server: Any, keys: KeyRing) -> None:
    server = start_server(keys=keys, log_prompts=True)
    server.post("/v1/completions", PROMPT, key="key-a")
    server.wait_until_idle()
    assert " a completions " in server.log.getvalue()
    assert "key-a" not in server.log.getvalue()


def test_prompts_reach_the_log_only_where_asked_for(start_server: Any) -> None:
    logs = []
    for log_prompts in (False, True):
        server = start_server(log_prompts=log_prompts)
        server.complete("a secret", max_tokens=1)
        server.wait_until_idle()
        logs.append(server.log.getvalue())
    assert ["a secret" in log for log in logs] == [False, True]


def answer_to_bytes(server: Any, data: bytes) -> bytes:
    """Send a request in one piece, so that all of it is there before the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(data)
        return b"".join(iter(lambda: connection.recv(65536), b""))


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_long_body_is_refused_by_its_announced_length(start_server: Any) -> None:
    server = start_server(limits=ServerLimits(max_body_bytes=100))
    answer = answer_to_bytes(server, HEAD + b"Content-Length: 101\r\n\r\n" + b"x" * 101)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert b'"code":"body_too_large"' in answer
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).status == 200


@pytest.mark.parametrize("length", [b"9" * 17, b"9" * 19, b"9" * 5000])
def test_an_absurd_length_is_refused(start_server: Any, length: bytes) -> None:
    server = start_server(limits=ServerLimits(max_body_bytes=100))
    answer = answer_to_bytes(server, HEAD + b"Content-Length: " + length + b"\r\n\r\n")
    assert answer.split()[1] in (b"400", b"413")


def test_a_long_body_without_a_length_is_refused_as_it_comes(start_server: Any) -> None:
    server = start_server(limits=ServerLimits(max_body_bytes=100))
    chunk = b"3c\r\n" + b"x" * 60 + b"\r\n"
    answer = answer_to_bytes(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + 2 * chunk + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_error_responses_are_counted_by_status(start_server: Any, keys: KeyRing) -> None:
    server = start_server(keys=keys)
    server.post("/v1/completions", PROMPT)
    server.post("/v1/completions", {}, key="key-a")
    server.post("/v1/completions", {}, key="key-a")
    found = server.metrics()
    assert found['ratoon_http_errors_total{status="401"}'] == 1
    assert found['ratoon_http_errors_total{status="400"}'] == 2
