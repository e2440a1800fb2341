"""Load a server with more clients than its pool can hold, some of which leave, and check every answer.

    python bench/server/load.py smollm2 --clients 200 --requests 600 --pool 16MiB

Each client streams one request after the other from a bounded set; one in five connections is dropped after
a random number of events. Every finished answer must equal, bit for bit (text and log-probabilities), the
answer to the same request made alone before. At the end no block may be held, and the counters of `/metrics`
must equal the sum of what the responses reported and of what the log says of the dropped ones.
"""

import argparse
import asyncio
import json
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from client import Client
from process import ServerProcess, serving

WORDS = ("river", "stone", "lamp", "cloud", "bread", "iron", "silver", "forest", "paper", "garden", "window")


def make_requests(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Return different requests, many of which share a prefix."""
    prefixes = [" ".join(rng.choices(WORDS, k=length)) for length in (0, 30, 60, 120)]
    return [
        {
            "prompt": f"{rng.choice(prefixes)} {' '.join(rng.choices(WORDS, k=rng.randint(2, 30)))}",
            "max_tokens": rng.randint(1, 24),
            "temperature": rng.choice([0, 1]),
            "seed": rng.randrange(1000),
            "ignore_eos": True,
            "logprobs": 1,
            "n": rng.choice([1, 1, 1, 2]),
            "stop": rng.choice([None, None, None, "the"]),
        }
        for _ in range(count)
    ]


@dataclass
class Outcome:
    """What a client saw: the choices put together and their usage, or, if it left, only the request's id."""

    request_id: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any] | None = None


async def stream(client: Client, body: dict[str, Any], leave_after: int | None = None) -> Outcome:
    """Stream a request to its end, or leave after some events."""
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.request("POST", "/v1/completions", body) as response:
        assert response.status == 200, (response.status, await response.body())
        outcome = Outcome(
            response.headers["x-request-id"], [{"text": "", "logprobs": []} for _ in range(body["n"])]
        )
        count = 0
        async for event in response.events():
            assert "error" not in event, event
            outcome.usage = event["usage"]
            for choice in event["choices"]:
                together = outcome.choices[choice["index"]]
                together["text"] += choice["text"]
                together["logprobs"] += choice["logprobs"]["token_logprobs"]
            count += 1
            if count == leave_after:
                break
        assert outcome.usage or count == leave_after, "the stream ended without usage"
        return outcome


async def run(server: ServerProcess, args: argparse.Namespace) -> dict[str, Any]:
    """Make the answers alone, then all at once; compare and count."""
    client = Client(server.port, args.admin_key)
    requests = make_requests(random.Random(args.seed), args.distinct)
    alone = [await stream(client, body) for body in requests]
    await client.json("POST", "/cache/reset")
    places = iter(range(args.requests))
    loaded: list[Outcome] = []
    wrong = []

    async def be_a_client(number: int) -> None:
        own = random.Random(number)
        for _ in places:
            which = own.randrange(len(requests))
            leaves_after = own.randint(1, 12) if own.random() < 0.2 else None
            outcome = await stream(client, requests[which], leaves_after)
            loaded.append(outcome)
            if outcome.usage and outcome.choices != alone[which].choices:
                wrong.append(which)

    begun = time.perf_counter()
    await asyncio.wait_for(asyncio.gather(*map(be_a_client, range(args.clients))), timeout=args.limit)
    seconds = time.perf_counter() - begun
    metrics = await client.metrics()
    while metrics["ratoon_num_requests_running"] + metrics["ratoon_num_requests_waiting"]:
        metrics = await client.metrics()
    stats = await client.json("GET", "/cache/stats")
    return {
        "clients": args.clients,
        "finished": sum(outcome.usage is not None for outcome in loaded),
        "left": sum(outcome.usage is None for outcome in loaded),
        "wrong": len(wrong),
        "seconds": round(seconds, 1),
        "preemptions": stats["num_preemptions"],
        "evicted_blocks": stats["num_evicted_blocks"],
        "failed_steps": stats["num_failed_steps"],
        "active_blocks_at_end": stats["num_active_blocks"],
        "counters_equal": counters_equal(metrics, [*alone, *loaded], server.lines),
    }


def counters_equal(metrics: dict[str, float], outcomes: list[Outcome], lines: list[str]) -> dict[str, bool]:
    """Compare `/metrics` with the usage of every response; what nobody waited for is known from the log."""
    logged = {line.split()[1]: line for line in lines if " prompt=" in line}

    def total(in_usage: Callable[[dict[str, Any]], int], in_log: str) -> int:
        return sum(
            in_usage(outcome.usage)
            if outcome.usage
            else int(re.findall(rf" {in_log}=(\d+)", logged[outcome.request_id])[0])
            for outcome in outcomes
        )

    outcome_counters = [value for name, value in metrics.items() if name.startswith("ratoon_requests_total")]
    return {
        "prompt_tokens": metrics["ratoon_prompt_tokens_total"]
        == total(lambda usage: usage["prompt_tokens"], "prompt"),
        "cached_tokens": metrics["ratoon_cached_prompt_tokens_total"]
        == total(lambda usage: usage["prompt_tokens_details"]["cached_tokens"], "cached"),
        "generation_tokens": metrics["ratoon_generation_tokens_total"]
        == total(lambda usage: usage["completion_tokens"], "output"),
        "requests": sum(outcome_counters) == len(outcomes),
    }


def main() -> None:
    """Start a server and load it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--distinct", type=int, default=40)
    parser.add_argument("--pool", default="16MiB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--limit", type=float, default=900.0, help="seconds after which the run counts as stuck"
    )
    parser.set_defaults(admin_key="bench")
    args, server_options = parser.parse_known_args()
    options = ["--kv-cache-bytes", args.pool, "--admin-key", args.admin_key, *server_options]
    limits = ["--max-concurrent-requests", "1000", "--max-queued-requests", "1000"]
    with serving(args.model, *options, *limits, "--request-deadline", str(args.limit)) as server:
        result = asyncio.run(run(server, args))
        result["exit_status"] = server.stop()
    print(json.dumps(result, indent=1))
    held = (
        all(result["counters_equal"].values()) and not result["wrong"] and not result["active_blocks_at_end"]
    )
    raise SystemExit(0 if held and result["exit_status"] == 0 else 1)


if __name__ == "__main__":
    main()
