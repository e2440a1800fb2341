"""Ratoon's cache manager beside vLLM's: the same prompt of 131,072 tokens through both, round by round.

    python bench/peers/cache_manager.py [--rounds 15]

Cold: the prompt is hashed, looked up in vain, its blocks are allocated (others are evicted for them, once the
pool is full) and entered in the index, and freed. Warm: it comes again with another last token. Both use 16
tokens a block and their default hash. vLLM runs in the environment that `run.py setup vllm` makes.
"""

import argparse
import gc
import importlib
import json
import random
import statistics
import subprocess
import sys
from pathlib import Path

from peers import HERE, python_of

NUM_TOKENS = 131_072
BLOCK_SIZE = 16
SIDES = ("ratoon", "vllm")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--environments", type=Path, default=HERE / ".environments")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)  # what the two processes are asked
    args = parser.parse_args()
    if args.side:
        serve(args.side)
        return 0
    if not python_of("vllm", args.environments).exists():
        print("vLLM is not installed; run: python bench/peers/run.py setup vllm", file=sys.stderr)
        return 1
    sides = {side: start(side, args.environments) for side in SIDES}
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(-3, args.rounds):  # the first rounds warm up and fill the pools
        order = SIDES if number % 2 else SIDES[::-1]
        seconds = {side: ask(sides[side], number + 3) for side in order}
        if number >= 0:
            rounds.append(seconds)
    for process in sides.values():
        process.communicate()
    print(table(rounds))
    return 0


def start(side: str, environments: Path) -> "subprocess.Popen[str]":
    """Start one side in its own environment."""
    command = [str(python_of(side, environments)), __file__, "--side", side]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: "subprocess.Popen[str]", seed: int) -> dict[str, float]:
    """Have one side do its round; return the seconds of its operations."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(seed, file=process.stdin, flush=True)
    while not (line := process.stdout.readline()).startswith("{"):  # the peer's libraries print, too
        if not line:
            raise SystemExit(f"A side ended with status {process.wait()}.")
    seconds: dict[str, float] = json.loads(line)
    return seconds


def serve(side: str) -> None:
    """Do a round for each line of input."""
    cycle = importlib.import_module(f"cache_{side}").CacheCycle(NUM_TOKENS, BLOCK_SIZE)
    for line in sys.stdin:
        rng = random.Random(int(line))
        tokens = [rng.randrange(100, 49000) for _ in range(NUM_TOKENS)]
        gc.collect()
        print(json.dumps(cycle.run(tokens)), flush=True)


def table(rounds: list[dict[str, dict[str, float]]]) -> str:
    """Return a Markdown table: medians in milliseconds, and the ratios of the rounds."""
    operations = list(rounds[0]["ratoon"])
    rows = {name: [name] for name in operations}
    rows["cold, in all"] = [name for name in operations if name.startswith("miss")]
    rows["warm, in all"] = [name for name in operations if name.startswith("hit")]
    lines = ["| operation | ratoon, ms | vLLM, ms | ratoon : vLLM |", "|---|---|---|---|"]
    for row, parts in rows.items():
        ours, theirs = ([sum(r[side][part] for part in parts) for r in rounds] for side in SIDES)
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        lines.append(
            f"| {row} | {statistics.median(ours) * 1e3:.2f} | {statistics.median(theirs) * 1e3:.2f} "
            f"| {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
