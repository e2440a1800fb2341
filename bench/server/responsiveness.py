"""Ask `/health` while long prefills run.

    python bench/server/responsiveness.py smollm2 --tokens 2000

One connection asks again and again, without a pause, and times each answer; another sends cold prompts one
after the other. Only answers during a prefill count.
"""

import argparse
import asyncio
import json
import random
import time
from typing import Any

from client import Client
from process import ServerProcess, serving


async def run(server: ServerProcess, args: argparse.Namespace) -> dict[str, Any]:
    """Prefill and ask at the same time."""
    client = Client(server.port)
    rng = random.Random(args.seed)
    latencies: list[float] = []
    prefills: list[float] = []

    async def ask() -> None:
        while len(prefills) < args.prefills:
            begun = time.perf_counter()
            await client.json("GET", "/health")
            latencies.append(time.perf_counter() - begun)
            await asyncio.sleep(0.005)

    asking = asyncio.create_task(ask())
    for _ in range(args.prefills):
        prompt = [rng.randrange(1000, 40000) for _ in range(args.tokens)]
        begun = time.perf_counter()
        await client.json("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1})
        prefills.append(time.perf_counter() - begun)
    await asking
    latencies.sort()
    return {
        "prefills": args.prefills,
        "prompt_tokens": args.tokens,
        "prefill_s": [round(seconds, 2) for seconds in prefills],
        "health_samples": len(latencies),
        "health_ms": {
            "p50": round(1000 * latencies[len(latencies) // 2], 2),
            "p99": round(1000 * latencies[int(len(latencies) * 0.99)], 2),
            "max": round(1000 * latencies[-1], 2),
        },
    }


def main() -> None:
    """Start a server and time it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--prefills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args, server_options = parser.parse_known_args()
    with serving(args.model, *server_options) as server:
        result = asyncio.run(run(server, args))
        server.stop()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
