"""Watch a server's memory over many requests.

    python bench/server/memory.py smollm2 --requests 10000

The first tenth warms up (the pool is touched, caches fill); from then on the memory must stay flat.
"""

import argparse
import asyncio
import json
import random
from typing import Any

from client import Client
from process import ServerProcess, serving


async def run(server: ServerProcess, args: argparse.Namespace) -> dict[str, Any]:
    """Send the requests from some clients and note the memory along the way."""
    client = Client(server.port)
    places = iter(range(args.requests))
    samples: dict[int, int] = {}

    async def send(number: int) -> None:
        rng = random.Random(number)
        for place in places:
            prompt = " ".join(str(rng.randrange(100)) for _ in range(rng.randint(1, 20)))
            body = {
                "prompt": prompt,
                "max_tokens": rng.randint(1, 4),
                "stream": rng.random() < 0.5,
                "logprobs": 1,
            }
            async with client.request("POST", "/v1/completions", body) as response:
                assert response.status == 200, await response.body()
                await response.body()
            if place % (args.requests // 20) == 0:
                samples[place] = server.rss_bytes()

    await asyncio.gather(*map(send, range(args.clients)))
    samples[args.requests] = server.rss_bytes()
    warm = [size for place, size in sorted(samples.items()) if place >= args.requests // 10]
    return {
        "requests": args.requests,
        "rss_mib": {place: round(size / 2**20, 1) for place, size in sorted(samples.items())},
        "growth_mib": round((warm[-1] - warm[0]) / 2**20, 2),
    }


def main() -> None:
    """Start a server and watch it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=16)
    args, server_options = parser.parse_known_args()
    with serving(args.model, "--kv-cache-bytes", "16MiB", *server_options) as server:
        result = asyncio.run(run(server, args))
        server.stop()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
