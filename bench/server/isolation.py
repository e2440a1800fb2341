"""Show that a tenant's first request is a cold one although another tenant sent the same prompt.

    python bench/server/isolation.py smollm2 --runs 30

In each run tenant A sends a new prompt twice (cold, then warm), then tenant B sends the same prompt. Reported
are the cached tokens and the distributions of TTFT as the server measured it, and two-sided Mann-Whitney
tests: B against A's cold requests (should not differ) and B against A's warm ones (should differ).
"""

import argparse
import asyncio
import hashlib
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

from client import Client
from process import ServerProcess, serving
from scipy.stats import mannwhitneyu

KEYS = {"a": "key-of-a", "b": "key-of-b"}


async def ask(client: Client, prompt: list[int]) -> tuple[int, float]:
    """Return the cached tokens and the TTFT of one request."""
    body = {"prompt": prompt, "max_tokens": 1, "temperature": 0, "include_cache_report": True}
    report = (await client.json("POST", "/v1/completions", body))["usage"]["ratoon"]
    return report["cached_tokens"], report["ttft_s"]


async def run(server: ServerProcess, args: argparse.Namespace) -> dict[str, Any]:
    """Make the runs, the order of B and A's second request changing from run to run."""
    a, b = (Client(server.port, key) for key in KEYS.values())
    rng = random.Random(args.seed)
    found: dict[str, list[tuple[int, float]]] = {"a_cold": [], "a_warm": [], "b_first": []}
    for number in range(args.runs + 1):
        prompt = [rng.randrange(1000, 40000) for _ in range(args.tokens)]
        result = {"a_cold": await ask(a, prompt)}
        later = [("a_warm", a), ("b_first", b)]
        rng.shuffle(later)
        for name, client in later:
            result[name] = await ask(client, prompt)
        if number:  # the first run warms up
            for name, value in result.items():
                found[name].append(value)
    seconds = {name: [value[1] for value in values] for name, values in found.items()}
    return {
        "runs": args.runs,
        "prompt_tokens": args.tokens,
        "cached_tokens": {name: sorted({value[0] for value in values}) for name, values in found.items()},
        "ttft_ms": {
            name: {
                "median": round(1000 * statistics.median(values), 2),
                "min": round(1000 * min(values), 2),
                "max": round(1000 * max(values), 2),
            }
            for name, values in seconds.items()
        },
        "p_b_first_equals_a_cold": float(mannwhitneyu(seconds["b_first"], seconds["a_cold"]).pvalue),
        "p_b_first_equals_a_warm": float(mannwhitneyu(seconds["b_first"], seconds["a_warm"]).pvalue),
    }


def main() -> None:
    """Start a server with two tenants and compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    args, server_options = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder, "keys.toml")
        keys.write_text(
            "".join(
                f'[tenants.{name}]\nkeys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n'
                for name, key in KEYS.items()
            )
        )
        with serving(args.model, "--api-keys", str(keys), *server_options) as server:
            result = asyncio.run(run(server, args))
            server.stop()
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
