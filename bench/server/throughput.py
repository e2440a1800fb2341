"""Compare the throughput through HTTP with the engine's own on a burst of requests that share a prefix.

    python bench/server/throughput.py smollm2 --requests 16

The same requests (1,024 shared tokens, then 32 of their own, 128 output tokens) are run by the library in
this process, asked from a server in one piece each, and streamed from it; turn by turn, each time on a cold
cache, in an order that changes from round to round. The figures are medians of the rounds' ratios, so that
slow drifts of the machine cancel out. The clients share the machine with the server.
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


async def run_server(
    client: Client, prompts: list[list[int]], args: argparse.Namespace, *, stream: bool
) -> float:
    """Return the seconds until clients that ask for everything at once have their answers."""
    await client.json("POST", "/cache/reset")
    fields: dict[str, Any] = {"temperature": 0, "max_tokens": args.output, "ignore_eos": True}
    if stream:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    answers = []

    async def ask(prompt: list[int]) -> None:
        async with client.request("POST", "/v1/completions", {"prompt": prompt, **fields}) as response:
            answers.append(await response.reader.read())  # looked at when the clock has stopped

    begun = time.perf_counter()
    await asyncio.gather(*map(ask, prompts))
    seconds = time.perf_counter() - begun
    assert all(f'"completion_tokens":{args.output},'.encode() in answer for answer in answers)
    return seconds


def main() -> None:
    """Measure both in turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--shared", type=int, default=1024)
    parser.add_argument("--own", type=int, default=32)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    rng = random.Random(1)
    rounds: list[dict[str, float]] = []
    with LLM(args.model) as llm, serving(args.model, "--admin-key", "bench") as process:
        client = Client(process.port, "bench")
        for number in range(args.rounds + 1):
            prompts = make_prompts(rng, args)
            seconds = {}
            for kind in rng.sample(["engine", "whole", "streamed"], 3):
                if kind == "engine":
                    seconds[kind] = run_engine(llm, prompts, args)
                else:
                    seconds[kind] = asyncio.run(run_server(client, prompts, args, stream=kind == "streamed"))
            if number:  # the first round warms up
                rounds.append(seconds)
        process.stop()
    tokens = args.requests * args.output
    result: dict[str, Any] = {
        "output_tokens": tokens,
        "tokens_per_s": {
            kind: round(tokens / statistics.median(seconds[kind] for seconds in rounds), 1)
            for kind in ("engine", "whole", "streamed")
        },
        "ratio_to_engine": {
            kind: round(statistics.median(seconds["engine"] / seconds[kind] for seconds in rounds), 3)
            for kind in ("whole", "streamed")
        },
        "ratios": {
            kind: sorted(round(seconds["engine"] / seconds[kind], 3) for seconds in rounds)
            for kind in ("whole", "streamed")
        },
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
