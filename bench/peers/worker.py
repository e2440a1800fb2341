"""The loop of a peer's process: load a model, say so, then run one piece of work per line of input.

Runs inside the peer's own environment, so it uses the standard library only.
Input lines are {"prompts": [[ids]], "max_tokens": n}; each answer is {"token_times_s": [[seconds since the
work began, one per token]]}. The first line out is {"ready": {...}}. Standard output belongs to this
protocol: whatever the peer's libraries print goes to standard error.
"""

import argparse
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Protocol


class Peer(Protocol):
    """What each `*_peer.py` offers as `load(model, threads)`."""

    description: str

    def run(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """Generate greedily past end-of-sequence; return each token's `time.perf_counter()`, by prompt."""
        ...


def peak_memory_bytes() -> int:
    """Return the largest resident set so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Serve work until the input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: object) -> None:
        print(json.dumps(value), file=answers, flush=True)

    peer: Peer = importlib.import_module(f"{args.peer}_peer").load(args.model, args.threads)
    answer({"ready": {"description": peer.description}})
    for line in sys.stdin:
        work = json.loads(line)
        start = time.perf_counter()
        try:
            times = peer.run(work["prompts"], work["max_tokens"])
        except Exception as error:  # reported with the result, so that one failing cell does not end the run
            answer({"error": f"{type(error).__name__}: {error}"})
            continue
        answer(
            {
                "token_times_s": [[t - start for t in prompt] for prompt in times],
                "peak_memory_bytes": peak_memory_bytes(),
            }
        )


if __name__ == "__main__":
    main()
