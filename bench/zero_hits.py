"""What caching costs where it never helps: throughput with all prompts different, caching on against off.

    python bench/zero_hits.py [--rounds 40]

Each round runs the same new prompts with and without caching, in an order that changes, on one model whose
small pool is full from the first rounds on, so that with caching every block that is handed out must be
forgotten first. The result is the median of the rounds' ratios with its 95 % interval; and, since kernels
take the same time either way, what plan and apply took more, as a share of the time. Hashing a prompt is part
of both, because chains are always made; it is shown by itself.
"""

import argparse
import random
import time
from dataclasses import dataclass, replace

from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.lab.statistics import Estimate, median, paired_ratio
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.util.progress import TerminalProgress


@dataclass(frozen=True)
class Round:
    """Seconds of one round: in all, in plan and apply, and for making the hash chains."""

    seconds: float
    deciding_s: float
    hashing_s: float


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=256, help="tokens of each prompt")
    parser.add_argument("--output", type=int, default=16, help="tokens of each answer")
    args = parser.parse_args()
    tokens_per_round = args.requests * (args.prompt + args.output)
    pool_bytes = 2 * tokens_per_round * 24_000  # of SmolLM2's size
    config = EngineConfig(threads=args.threads, kv_cache_bytes=pool_bytes)
    model = load_model(args.model, config)
    cores = {
        True: build_core(model),
        False: build_core(model, replace(model.config, enable_prefix_caching=False)),
    }
    rng = random.Random(0)
    rounds: dict[bool, list[Round]] = {True: [], False: []}
    with TerminalProgress() as progress:
        for number in range(-4, args.rounds):  # the first rounds fill the pool
            prompts = [[rng.randrange(100, 49000) for _ in range(args.prompt)] for _ in range(args.requests)]
            for caching in (True, False) if number % 2 else (False, True):
                found = run(cores[caching], model, prompts, args.output)
                if number >= 0:
                    rounds[caching].append(found)
            progress("rounds", max(0, number + 1), args.rounds)
    stats = cores[True].scheduler.cache.stats
    assert stats.num_hit_tokens == 0, "all prompts are different"
    assert stats.num_evicted_blocks > 0, "the pool was full"
    print(report(rounds, args.requests * args.output, tokens_per_round))


def run(core: EngineCore, model: LoadedModel, prompts: list[list[int]], max_tokens: int) -> Round:
    """Serve prompts that arrive together."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    before = core.totals.plan_s + core.totals.apply_s
    begun = time.perf_counter()
    chains = [model.chain(prompt) for prompt in prompts]
    hashed = time.perf_counter()
    for number, chain in enumerate(chains):
        core.add(Request(number, chain, params, seed=0))
    while core.has_work:
        core.step()
    ended = time.perf_counter()
    return Round(ended - begun, core.totals.plan_s + core.totals.apply_s - before, hashed - begun)


def report(rounds: dict[bool, list[Round]], num_output: int, num_tokens: int) -> str:
    """Return the figures in lines."""
    on, off = rounds[True], rounds[False]
    seconds = {caching: [r.seconds for r in found] for caching, found in rounds.items()}
    ratio = paired_ratio(seconds[True], seconds[False])  # of throughputs: on / off
    deciding = median([(a.deciding_s - b.deciding_s) / b.seconds for a, b in zip(on, off, strict=True)])
    hashing = median([r.hashing_s / r.seconds for r in on])
    return "\n".join(
        (
            f"{len(on)} rounds of {num_tokens} tokens, {num_output} of them output, no hits",
            f"caching off: {num_tokens / median(seconds[False]).value:.0f} tok/s",
            f"caching on:  {num_tokens / median(seconds[True]).value:.0f} tok/s",
            f"throughput on / off: {of(ratio, 1)}",
            f"plan and apply, more with caching on: {of(deciding, 100)} % of the time",
            f"hashing the prompts, on or off: {of(hashing, 100)} % of the time",
        )
    )


def of(estimate: Estimate, scale: float) -> str:
    """Return a value with its interval."""
    interval = "too few rounds for an interval"
    if estimate.low is not None and estimate.high is not None:
        interval = f"95 %: {scale * estimate.low:.4f} to {scale * estimate.high:.4f}"
    return f"{scale * estimate.value:.4f} ({interval})"


if __name__ == "__main__":
    main()
