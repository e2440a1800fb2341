"""Adapters over HTTP, on a fake model: chosen as `model`, loaded and unloaded while requests run."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.server.http.limits import TenantLimits
from ratoon.server.tenants import SaltDeriver, read_key_file

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PROMPT = {"prompt": "a prompt of twenty-six..", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
MakeFolder = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, write_adapter: Callable[..., Path]) -> MakeFolder:
    """Return a function that writes a folder whose content depends on a seed."""

    def make(seed: int, name: str | None = None, **settings: object) -> str:
        rng = np.random.default_rng(seed)
        pair = rng.standard_normal((2, 8), np.float32), rng.standard_normal((8, 2), np.float32)
        path = tmp_path / (name or f"adapter-{seed}")
        return str(write_adapter(path, {"model.layers.0.mlp.up_proj": pair}, **settings))

    return make


def load(server: Any, name: str, path: str, key: str | None = "root") -> Any:
    return server.post(LOAD, {"lora_name": name, "lora_path": path}, key=key)


def unload(server: Any, name: str, key: str | None = "root") -> Any:
    return server.post(UNLOAD, {"lora_name": name}, key=key)


def ask(server: Any, model: str, **fields: Any) -> tuple[str, int]:
    """Return the text of a completion, and how many tokens of the prompt were cached."""
    body = server.post("/v1/completions", {**PROMPT, "model": model, **fields}).json
    assert body["model"] == model
    return body["choices"][0]["text"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_an_adapter_is_loaded_listed_asked_and_unloaded(start_server: Any, folder: MakeFolder) -> None:
    server = start_server()
    reply = load(server, "poet", folder(1))
    assert reply.status == 200
    loaded = reply.json
    assert len(bytes.fromhex(loaded.pop("digest"))) == 32
    assert loaded == {
        "num_bytes": 1000,
        "adapters": ["poet"],
        "used_bytes": 1000,
        "budget_bytes": 2000,
    }
    cards = server.get("/v1/models").json["data"]
    assert [(card["id"], card["parent"]) for card in cards] == [("fake", None), ("poet", "fake")]
    assert server.get("/v1/models/poet").json == cards[1]
    plain, through = ask(server, "fake")[0], ask(server, "poet")[0]
    assert plain != through
    chat = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 9}
    bodies = [
        server.post("/v1/chat/completions", {**chat, "model": model}).json for model in ("fake", "poet")
    ]
    assert bodies[0]["choices"] != bodies[1]["choices"]
    assert bodies[1]["model"] == "poet"
    assert unload(server, "poet").json == {"adapters": [], "used_bytes": 0, "budget_bytes": 2000}
    assert len(server.get("/v1/models").json["data"]) == 1
    gone = server.post("/v1/completions", {**PROMPT, "model": "poet"})
    assert (gone.status, gone.json["error"]["code"]) == (404, "model_not_found")


def test_an_unknown_model_is_refused_with_the_known_ones(start_server: Any, folder: MakeFolder) -> None:
    server = start_server()
    load(server, "poet", folder(1))
    for path, body in (("/v1/completions", PROMPT), ("/tokenize", {"prompt": "x"})):
        reply = server.post(path, {**body, "model": "other"})
        assert (reply.status, reply.json["error"]["param"]) == (404, "model")
        assert "'fake', 'poet'" in reply.json["error"]["message"]
    assert server.get("/v1/models/other").status == 404
    assert server.post("/tokenize", {"prompt": "x", "model": "poet"}).json["tokens"] == [120]


def test_blocks_are_shared_by_content_and_not_by_name(start_server: Any, folder: MakeFolder) -> None:
    server = start_server()
    load(server, "poet", folder(1))
    text, cached = ask(server, "poet")
    assert cached == 0
    assert ask(server, "fake")[1] == 0
    load(server, "bard", folder(1, "copy"))
    assert ask(server, "bard") == (text, 23)
    load(server, "poet", folder(2))
    other, cached = ask(server, "poet")
    assert (cached, other == text) == (0, False)
    assert ask(server, "bard") == (text, 23)


def test_the_fingerprint_tells_what_a_name_stood_for(start_server: Any, folder: MakeFolder) -> None:
    server = start_server()

    def fingerprint(model: str) -> str:
        text: str = server.post("/v1/completions", {**PROMPT, "model": model}).json["system_fingerprint"]
        return text

    load(server, "poet", folder(1))
    first = fingerprint("poet")
    load(server, "poet", folder(2))
    assert len({first, fingerprint("poet"), fingerprint("fake")}) == 3
    load(server, "poet", folder(1))
    assert fingerprint("poet") == first


@pytest.mark.parametrize("change", ["reload", "unload"])
def test_a_running_request_ends_on_the_weights_it_began_with(
    start_server: Any, folder: MakeFolder, change: str
) -> None:
    server = start_server()
    load(server, "poet", folder(1))
    expected, _ = ask(server, "poet", max_tokens=20)
    server.post("/cache/reset", None, key="root")
    server.runner.hold()
    body = {**PROMPT, "model": "poet", "max_tokens": 20}
    answering = server.in_background("POST", "/v1/completions", body)
    server.wait_for_requests(1)
    server.runner.allow(3)
    if change == "reload":
        assert load(server, "poet", folder(2)).json["used_bytes"] == 2000
    else:
        assert unload(server, "poet").json["used_bytes"] == 1000
    server.runner.allow(None)
    assert answering.reply().json["choices"][0]["text"] == expected
    server.wait_until_idle()
    assert server.service.model.adapters.num_bytes == (1000 if change == "reload" else 0)


def test_a_full_budget_is_said_and_room_comes_with_unloading(start_server: Any, folder: MakeFolder) -> None:
    server = start_server()
    for number in (1, 2):
        assert load(server, f"adapter-{number}", folder(number)).status == 200
    reply = load(server, "adapter-3", folder(3))
    assert (reply.status, reply.json["error"]["code"]) == (409, "adapter_budget_exceeded")
    assert "2 KiB" in reply.json["error"]["message"]
    unload(server, "adapter-1")
    assert load(server, "adapter-3", folder(3)).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (LOAD, {"lora_name": "fake", "lora_path": "x"}, 400, "invalid_value"),
        (LOAD, {"lora_name": "", "lora_path": "x"}, 400, "invalid_value"),
        (LOAD, {"lora_name": "poet"}, 400, "invalid_value"),
        (LOAD, {"lora_name": "poet", "lora_path": 7}, 400, "invalid_value"),
        (LOAD, {"lora_name": "poet", "lora_path": "/no/such/folder"}, 400, "invalid_adapter"),
        (LOAD, {"lora_name": "poet", "lora_path": "\0"}, 400, "invalid_adapter"),
        (UNLOAD, {"lora_name": "nobody"}, 404, "model_not_found"),
        (UNLOAD, {}, 400, "invalid_value"),
    ],
)
def test_what_cannot_be_done_is_refused(
    server: Any, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    reply = server.post(path, body, key="root")
    assert (reply.status, reply.json["error"]["code"]) == (status, code)


def test_an_adapter_that_is_not_implemented_is_refused_by_name(server: Any, folder: MakeFolder) -> None:
    reply = load(server, "dora", folder(1, use_dora=True))
    assert (reply.status, reply.json["error"]["code"]) == (400, "invalid_adapter")
    assert "DoRA" in reply.json["error"]["message"]


def test_only_the_admin_loads_and_every_tenant_may_use(
    start_server: Any, folder: MakeFolder, tmp_path: Path
) -> None:
    def entry(key: str) -> str:
        return f'keys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n'

    file = tmp_path / "keys.toml"
    file.write_text(f"[admin]\n{entry('root')}[tenants.a]\n{entry('key-a')}[tenants.b]\n{entry('key-b')}")
    server = start_server(keys=read_key_file(file, SaltDeriver(b"s" * 32), TenantLimits()))
    assert [load(server, "poet", folder(1), key).status for key in (None, "key-a", "root")] == [401, 403, 200]
    bodies = [
        server.post("/v1/completions", {**PROMPT, "model": "poet"}, key=key).json
        for key in ("key-a", "key-b", "key-a")
    ]
    assert len({body["choices"][0]["text"] for body in bodies}) == 1
    cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in bodies]
    assert cached == [0, 0, 23]  # the adapter is shared, the blocks are not
    assert [unload(server, "poet", key).status for key in (None, "key-a", "root")] == [401, 403, 200]
