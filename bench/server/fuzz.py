"""Send bodies that nobody meant and require a JSON answer to each, no crash and no lost block.

    python bench/server/fuzz.py smollm2 --bodies 10000

Half of the bodies are JSON of known fields with odd values, half are mutated bytes of valid ones.
"""

import argparse
import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from client import Client
from process import ServerProcess, serving

from ratoon.server.openai.body import UNSUPPORTED
from ratoon.server.openai.chat import ChatBody
from ratoon.server.openai.completions import CompletionBody
from ratoon.server.openai.routes import DetokenizeBody, TokenizeBody

BODIES = {
    "/v1/completions": (CompletionBody, {"prompt": "Hello", "max_tokens": 2}),
    "/v1/chat/completions": (ChatBody, {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}),
    "/tokenize": (TokenizeBody, {"prompt": "Hello"}),
    "/detokenize": (DetokenizeBody, {"tokens": [1, 2, 3]}),
}
ODD_TEXTS = ("", "\ud800", "\0", "\u202e", "é" * 50, "<|im_end|>", "{{ 7 * 7 }}", "a" * 3000, "\ufdd0", "🦀")
ODD_NUMBERS = (0, -1, 1, 2, 3, 1e308, -1e308, 2**31, 2**63, 2**64, 10**40, 0.5, float("nan"), float("inf"))


def odd_value(rng: random.Random, depth: int = 3) -> Any:
    """Return some JSON."""
    makers: list[Callable[[], Any]] = [
        lambda: None,
        lambda: rng.random() < 0.5,
        lambda: rng.choice(ODD_NUMBERS),
        lambda: rng.choice(ODD_TEXTS),
        lambda: rng.randint(-5, 60000),
    ]
    if depth:
        makers += [
            lambda: [odd_value(rng, depth - 1) for _ in range(rng.randint(0, 4))],
            lambda: {rng.choice(ODD_TEXTS): odd_value(rng, depth - 1) for _ in range(rng.randint(0, 3))},
            lambda: [{"role": odd_value(rng, 0), "content": odd_value(rng, 1)}],
        ]
    return rng.choice(makers)()


def odd_body(rng: random.Random, path: str) -> bytes:
    """Return a body for the path: right but for some fields, or but for some bytes."""
    model, valid = BODIES[path]
    body = dict(valid)
    fields = [*model.model_fields, *UNSUPPORTED, "unknown"]
    for _ in range(rng.randint(0, 3)):
        body[rng.choice(fields)] = odd_value(rng)
    if body.get("n") not in (None, 1, 2):
        body["n"] = rng.choice((-1, 0, 3, "2", 129))
    data = json.dumps(body).encode()
    if rng.random() < 0.5:
        mutated = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(mutated) + 1)
            mutated[place : place + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        data = bytes(mutated)
    return data


async def run(server: ServerProcess, args: argparse.Namespace) -> dict[str, Any]:
    """Send all bodies, some at a time."""
    client = Client(server.port, args.admin_key)
    rng = random.Random(args.seed)
    paths = list(BODIES)
    statuses: Counter[int] = Counter()
    bad: list[Any] = []
    places = iter(range(args.bodies))

    async def send() -> None:
        for _ in places:
            path = rng.choice(paths)
            data = odd_body(rng, path)
            async with client.request("POST", path, raw=data) as response:
                body = await response.body()
            statuses[response.status] += 1
            if response.status >= 500 or not is_json(body, response.headers.get("content-type", "")):
                bad.append((path, data[:300], response.status, body[:300]))

    await asyncio.gather(*(send() for _ in range(args.clients)))
    metrics = await client.metrics()
    while metrics["ratoon_num_requests_running"] + metrics["ratoon_num_requests_waiting"]:
        metrics = await client.metrics()
    return {
        "bodies": args.bodies,
        "statuses": dict(sorted(statuses.items())),
        "bad": bad[:5],
        "num_bad": len(bad),
        "active_blocks_at_end": metrics['ratoon_kv_cache_blocks{state="active"}'],
        "failed_steps": metrics["ratoon_failed_steps_total"],
    }


def is_json(body: bytes, content_type: str) -> bool:
    """Whether a body is what its content type says: JSON, or events of JSON."""
    try:
        if content_type.startswith("text/event-stream"):
            *events, done, _ = body.split(b"\n\n")
            return done == b"data: [DONE]" and all(json.loads(event[6:]) for event in events)
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def main() -> None:
    """Start a server and fuzz it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--bodies", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(admin_key="bench")
    args, server_options = parser.parse_known_args()
    limits = ["--max-output-tokens", "4", "--max-model-len", "512"]
    with serving(args.model, "--admin-key", args.admin_key, *limits, *server_options) as server:
        result = asyncio.run(run(server, args))
        result["tracebacks"] = sum(line.startswith("Traceback") for line in server.lines)
        result["exit_status"] = server.stop()
    print(json.dumps(result, indent=1, default=repr))
    lost = (
        result["num_bad"] or result["active_blocks_at_end"] or result["tracebacks"] or result["exit_status"]
    )
    raise SystemExit(1 if lost else 0)


if __name__ == "__main__":
    main()
