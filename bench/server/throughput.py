"""Compare the throughput through HTTP with the engine's own on a burst of requests that share a prefix.

    python bench/server/throughput.py smollm2 --requests 16

The same requests (1,024 shared tokens, then 32 of their own, 64 output tokens) are run by the library in this
process and streamed from a server, turn by turn and each time on a cold cache. Which of the two comes first
changes from round to round; the figure is the median of the rounds' ratios, so that slow drifts of the
machine cancel out.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from typing import Any

from client import Client
from process import serving

from ratoon import LLM, SamplingParams


def make_prompts(rng: random.Random, args: argparse.Namespace) -> list[list[int]]:
    """Return prompts with one prefix."""
    shared = [rng.randrange(1000, 40000) for _ in range(args.shared)]
    return [shared + [rng.randrange(1000, 40000) for _ in range(args.own)] for _ in range(args.requests)]


def run_engine(llm: LLM, prompts: list[list[int]], args: argparse.Namespace) -> float:
    """Return the seconds that the library takes."""
    llm.reset_prefix_cache()
    params = SamplingParams(temperature=0, max_tokens=args.output, ignore_eos=True)
    begun = time.perf_counter()
    outputs = llm.generate(prompts, params)
    seconds = time.perf_counter() - begun
    assert all(len(output.outputs[0].token_ids) == args.output for output in outputs)
    return seconds


async def run_server(client: Client, prompts: list[list[int]], args: argparse.Namespace) -> float:
    """Return the seconds that clients wait who stream the same requests at once."""
    await client.json("POST", "/cache/reset")
    fields = {"temperature": 0, "max_tokens": args.output, "ignore_eos": True, "stream": True}

    async def stream(prompt: list[int]) -> None:
        options = {"stream_options": {"include_usage": True}}
        async with client.request(
            "POST", "/v1/completions", {"prompt": prompt, **fields, **options}
        ) as response:
            data = await response.body()  # read as it comes, looked at when all is there
        usage = json.loads(data.split(b"\n\n")[-3].removeprefix(b"data: "))["usage"]
        assert usage
        assert usage["completion_tokens"] == args.output

    begun = time.perf_counter()
    await asyncio.gather(*map(stream, prompts))
    return time.perf_counter() - begun


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--shared", type=int, default=1024)
    parser.add_argument("--own", type=int, default=32)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    rng = random.Random(1)
    rounds: list[tuple[float, float]] = []
    with LLM(args.model) as llm, serving(args.model, "--admin-key", "bench") as process:
        client = Client(process.port, "bench")
        for number in range(args.rounds + 1):
            prompts = make_prompts(rng, args)
            runs = [
                lambda prompts=prompts: run_engine(llm, prompts, args),
                lambda prompts=prompts: asyncio.run(run_server(client, prompts, args)),
            ]
            if number % 2:
                engine, server = (run() for run in runs)
            else:
                server, engine = (run() for run in reversed(runs))
            if number:  # the first round warms up
                rounds.append((engine, server))
        process.stop()
    tokens = args.requests * args.output
    result: dict[str, Any] = {
        "output_tokens": tokens,
        "engine_tokens_per_s": round(tokens / statistics.median(engine for engine, _ in rounds), 1),
        "server_tokens_per_s": round(tokens / statistics.median(server for _, server in rounds), 1),
        "ratio": round(statistics.median(engine / server for engine, server in rounds), 4),
        "ratios": sorted(round(engine / server, 3) for engine, server in rounds),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
