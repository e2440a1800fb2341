"""A stand-in for the `ratoon` command: `serve` and `inspect`, with a cache of blocks and no model. Takes no
time.

Run as a script: `python fake_ratoon.py serve MODEL --port N ...`. Options that the real one lacks make it
misbehave.
"""

import argparse
import hashlib
import json
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BYTES_PER_BLOCK = 1_000
VOCABULARY = 500


class FakeCache:
    """Blocks by their whole prefix, least recently used first; what a prefix cache does, with nothing
    clever.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.blocks: dict[tuple[str, tuple[int, ...]], None] = {}
        self.num_blocks, self.block_size = num_blocks, block_size
        self.queries = self.hits = 0

    def run(self, namespace: str, prompt: list[int], output: list[int]) -> int:
        keys = self._keys(namespace, prompt)
        found = 0
        for key in keys:
            if key not in self.blocks:
                break
            found += self.block_size
        hits = min(found, len(prompt) - 1)
        self.queries += len(prompt)
        self.hits += hits
        for key in reversed(self._keys(namespace, prompt + output[:-1])):
            self.blocks.pop(key, None)
            self.blocks[key] = None
        while len(self.blocks) > self.num_blocks:
            del self.blocks[next(iter(self.blocks))]
        return hits

    def _keys(self, namespace: str, tokens: list[int]) -> list[tuple[str, tuple[int, ...]]]:
        ends = range(self.block_size, len(tokens) + 1, self.block_size)
        return [(namespace, tuple(tokens[:end])) for end in ends]


class Handler(BaseHTTPRequestHandler):
    options: argparse.Namespace
    cache: FakeCache
    tenants: dict[str, str]
    lock: threading.Lock
    answered: int

    def do_GET(self) -> None:
        if self.path == "/metrics" and not self.options.no_metrics:
            lines = [
                "# HELP ratoon_prefix_cache_queries_total Tokens.",
                f"ratoon_prefix_cache_queries_total {float(self.cache.queries)}",
                f"ratoon_prefix_cache_hits_total {float(self.cache.hits)}",
                f'ratoon_kv_cache_blocks{{state="free"}} {float(self.cache.num_blocks)}',
            ]
            self._reply(200, "\n".join(lines).encode())
        elif self.path == "/v1/models":
            self._reply(200, b'{"data": [{"id": "fake"}]}')
        elif self.path in ("/ready", "/health"):
            self._reply(200, b"{}")
        elif self.path == "/version":
            self._reply(200, b'{"version": "0"}')
        else:
            self._reply(404, b'{"error": {"message": "no such page"}}')

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._tokenize(body)
        else:
            with self.lock:
                self._complete(body)

    def _tokenize(self, body: dict[str, Any]) -> None:
        text = body.get("prompt") or json.dumps(body.get("messages"))
        tokens = [int(hashlib.sha256(word.encode()).hexdigest(), 16) % VOCABULARY for word in text.split()]
        self._reply(200, json.dumps({"tokens": tokens}).encode())

    def _complete(self, body: dict[str, Any]) -> None:
        type(self).answered += 1
        if 0 < self.options.fail_after < self.answered:
            self._reply(500, b'{"error": {"message": "out of order"}}')
            return
        prompt, count = body["prompt"], body["max_tokens"]
        output = [(sum(prompt) + index) % VOCABULARY for index in range(count)]
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        tenant = self.tenants.get(hashlib.sha256(key.encode()).hexdigest(), "")
        cached = 0
        if self.options.enable_prefix_caching:
            cached = self.cache.run(f"{tenant}/{body.get('cache_salt')}", prompt, output)
        cached = max(0, cached - self.options.hide_hits)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for token in output:
            choice = {"index": 0, "text": f" {token}", "token_ids": [token], "finish_reason": None}
            self._event(json.dumps({"choices": [choice]}))
            if self.options.cut_streams:
                return
        usage = {
            "prompt_tokens": len(prompt),
            "completion_tokens": count,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        self._event(json.dumps({"choices": [], "usage": usage}))
        self._event("[DONE]")

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def _reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it
        """Stay silent."""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Read a command line as `ratoon serve` or `ratoon inspect` would."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=("serve", "inspect"))
    parser.add_argument("model")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--kv-cache-bytes", type=int, default=1_000 * BYTES_PER_BLOCK)
    parser.add_argument("--enable-prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--api-keys", type=Path)
    parser.add_argument("--secret-file")
    parser.add_argument("--drain-timeout")
    parser.add_argument("--no-metrics", action="store_true")
    parser.add_argument("--cut-streams", action="store_true")
    parser.add_argument("--hide-hits", type=int, default=0)
    parser.add_argument("--fail-after", type=int, default=0)
    parser.add_argument("--fail-start", action="store_true")
    return parser.parse_args(arguments)


def make_server(options: argparse.Namespace) -> ThreadingHTTPServer:
    """Return a server that listens already and answers once it is told to serve."""
    tenants: dict[str, str] = {}
    if options.api_keys:
        for name, entry in tomllib.loads(options.api_keys.read_text())["tenants"].items():
            tenants |= {digest.removeprefix("sha256:"): name for digest in entry["keys"]}
    state = {
        "options": options,
        "cache": FakeCache(options.kv_cache_bytes // BYTES_PER_BLOCK - 1, options.block_size),
        "tenants": tenants,
        "lock": threading.Lock(),
        "answered": 0,
    }
    kind = type("Server", (ThreadingHTTPServer,), {"request_queue_size": 256, "daemon_threads": True})
    server: ThreadingHTTPServer = kind(("127.0.0.1", options.port), type("ItsHandler", (Handler,), state))
    return server


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    if given.command == "inspect":
        print(json.dumps({"bytes_per_block": BYTES_PER_BLOCK, "weights_digest": "00ff", "ops": "none"}))
    elif given.fail_start:
        sys.exit("error: no model of that name")
    else:
        make_server(given).serve_forever()
