"""All that a request may ask for, at once and over HTTP, on a tiny real model with windows.

Whatever is cached, shared or guessed, the answers are those of a server that does nothing of the kind.
"""

import base64
import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.draft.speculation import Speculation
from ratoon.engine.config import EngineConfig
from ratoon.server.served_model import load_served_model
from tests.support.tiny_model import HIDDEN_SIZE, write_tiny_adapter, write_tiny_model

ROUNDS = 3
LIST = [5, 9, 7, 11] * 6


def npy(rows: Any) -> str:
    file = io.BytesIO()
    np.save(file, rows)
    return base64.b64encode(file.getvalue()).decode()


ROWS = {
    "type": "prompt_embeds",
    "data": npy(np.random.default_rng(3).standard_normal((18, HIDDEN_SIZE)).astype(np.float32)),
}
AFTER = {"type": "token_ids", "token_ids": LIST}
BODIES: list[dict[str, Any]] = [
    {"prompt": LIST, "temperature": 0},
    {"prompt": LIST, "model": "poet", "temperature": 0, "logprobs": 2},
    {"prompt": LIST, "model": "poet", "n": 3, "seed": 5, "logprobs": 2, "temperature": 0.7},
    {"prompt": [ROWS, AFTER], "model": "poet", "n": 3, "seed": 5, "logprobs": 1, "temperature": 0.3},
    {"prompt": [AFTER, ROWS, AFTER], "n": 2, "seed": 6, "repetition_penalty": 1.1, "priority": 3},
    {"prompt": LIST, "model": "poet", "echo": True, "logprobs": 1, "n": 2, "seed": 7, "temperature": 0.5},
    {"prompt": LIST, "cache": {"write": False}, "model": "poet", "n": 2, "seed": 8, "temperature": 0.2},
    {"prompt": LIST, "cache": {"read": False}, "n": 2, "seed": 8, "temperature": 0.2, "cache_salt": "x"},
    {"prompt": [LIST, LIST[:9]], "model": "other", "n": 2, "seed": 9, "stop_token_ids": [7], "min_tokens": 5},
]
SETTINGS: list[dict[str, Any]] = [
    {"enable_prefix_caching": False},
    {"speculative": "ngram"},
    {"speculative": "model", "speculative_kv_cache_bytes": 1 << 18},
    {"speculative": "ngram", "share_in_flight": False, "max_num_batched_tokens": 7, "kv_cache_bytes": 50_000},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_adapter: Callable[..., Path]) -> Path:
    folder = tmp_path_factory.mktemp("together")
    write_tiny_model(folder / "model")
    write_tiny_adapter(folder / "poet", write_adapter, 1)
    write_tiny_adapter(folder / "other", write_adapter, 2)
    return folder


@pytest.fixture
def servers(folder: Path, start_server: Any, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plain one first; the others verify all that is guessed, whether it pays or not."""
    monkeypatch.setattr(Speculation, "_num_paying", lambda self, rates, most: list(most))
    adapters = {name: folder / name for name in ("poet", "other")}
    started = []
    for settings in SETTINGS:
        if settings.get("speculative") == "model":
            settings = settings | {"speculative": str(folder / "model")}
        config = EngineConfig(**{"block_size": 4, "kv_cache_bytes": 1 << 20, "threads": 1, **settings})
        load = partial(load_served_model, str(folder / "model"), "fake", config, adapters)
        started.append(start_server(load_model=load))
    return started


def answers(server: Any) -> Iterator[Any]:
    """Ask for everything together, several times, and return what was answered."""
    fields = {"max_tokens": 30, "ignore_eos": True, "return_token_ids": True, "include_cache_report": True}
    for _ in range(ROUNDS):
        replies = [server.in_background("POST", "/v1/completions", fields | body) for body in BODIES]
        for reply in replies:
            assert reply.reply().status == 200, reply.reply().body
            yield reply.reply().json


def test_whatever_is_cached_or_guessed_the_answers_are_the_same(servers: list[Any]) -> None:
    expected, *others = [list(answers(server)) for server in servers]
    for server, found in zip(servers[1:], others, strict=True):
        assert [body["choices"] for body in found] == [body["choices"] for body in expected]
        assert sum(body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in found) > 0
        assert sum(body["usage"]["ratoon"]["accepted_draft_tokens"] for body in found) > 0
        server.check_blocks()
