"""Where the time of a decode step goes: kernels, and everything around them.

    python bench/step_profile.py [--context 128] [--batch 1] [--threads 2]

The kernels' part is the time inside the calls into the native library, less what a call costs that computes
next to nothing: the same modules on a hollow model (hidden size 32, one head), with as many loops to share.
What is left of the step is Python (plan, the runner's own work, sampling, apply), calls, and synchronisation.
Steps without those clocks alternate with steps that have them, so that they do not count.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.model.load_decoder import load_decoder
from ratoon.device.ops.native import NativeOps
from ratoon.device.ops.protocol import (
    AttentionWeights,
    FeedForwardWeights,
    KVLayout,
    Layer,
    Layers,
    LMHeadWeights,
    Rope,
    StepInputs,
)
from ratoon.device.ops.reference import ReferenceOps
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.spec.cache_groups import cache_groups

MODULES = ("embedding", "attention", "feed_forward", "lm_head")
HOLLOW = 32
NUM_STEPS = 800
TURNS = 40
"""Steps without clocks, then with clocks, and so on: each has threads of its own, which sleep meanwhile."""


class TimedOps(NativeOps):
    """Notes the seconds of every call of a module, by kind."""

    def __init__(self, num_threads: int) -> None:
        super().__init__(num_threads)
        self.seconds: dict[str, list[float]] = {kind: [] for kind in MODULES}

    def timed(self, kind: str, module: Callable[..., Any]) -> Callable[..., Any]:
        """Return the module with a clock around it."""
        note, clock = self.seconds[kind].append, time.perf_counter

        def call(*args: Any) -> Any:
            begun = clock()
            found = module(*args)
            note(clock() - begun)
            return found

        return call

    def layers(self, layers: Sequence[Layer]) -> Layers:
        """Join layers module by module, so that each is timed."""
        return ReferenceOps().layers(layers)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return (lambda *args: self.timed(name, found(*args))) if name in MODULES else found


@dataclass(frozen=True)
class Profile:
    """Seconds per step, medians. `hollow` is what a call of each kind costs without its arithmetic."""

    step_s: float
    plan_s: float
    apply_s: float
    inside_s: dict[str, float]
    calls: dict[str, int]
    hollow_s: dict[str, float]

    def report(self) -> str:
        """Return a table in microseconds and shares of the step."""
        kernels = {kind: self.inside_s[kind] - self.calls[kind] * self.hollow_s[kind] for kind in MODULES}
        outside = self.step_s - sum(kernels.values())
        rows = [
            *((f"{kind} kernels", seconds) for kind, seconds in kernels.items()),
            ("plan", self.plan_s),
            ("runner, sampling, calls, synchronisation", outside - self.plan_s - self.apply_s),
            ("apply", self.apply_s),
            ("outside kernels, in all", outside),
            ("step", self.step_s),
        ]
        lines = ["| part | µs | share |", "|---|---|---|"]
        lines += [f"| {name} | {1e6 * s:.1f} | {s / self.step_s:.1%} |" for name, s in rows]
        return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    config = EngineConfig(threads=args.threads, max_num_seqs=args.batch)
    model = load_model(args.model, config)
    print(profile(model, TimedOps(args.threads), args.batch, args.context).report())


def with_ops(model: LoadedModel, ops: NativeOps) -> LoadedModel:
    """Load the model's weights again, with these ops."""
    spec, budget = model.spec, model.budget
    layout = KVLayout(
        budget.num_blocks, budget.block_size, budget.num_slots, spec.num_kv_heads, spec.head_dim
    )
    groups = cache_groups(spec)
    decoder = load_decoder(
        model.checkpoint, spec, groups, ops, ops.pages(layout), num_positions=model.config.max_model_len
    )
    return replace(model, decoder=decoder)


def profile(model: LoadedModel, ops: TimedOps, batch: int, context: int) -> Profile:
    """Decode `batch` sequences from `context` on, step by step with clocks around the modules and without."""
    plain, clocked = build_core(model), build_core(with_ops(model, ops))
    for core in (plain, clocked):
        start(core, model, batch, context)
    steps, plans, applies = [], [], []
    inside: dict[str, list[float]] = {kind: [] for kind in MODULES}
    for turn in range(NUM_STEPS):
        if turn // TURNS % 2:
            for seconds in ops.seconds.values():
                seconds.clear()
            clocked.step()
            for kind, seconds in ops.seconds.items():
                inside[kind].append(sum(seconds))
        else:
            begun = time.perf_counter()
            plain.step()
            steps.append(time.perf_counter() - begun)
            plans.append(plain.last_step.plan_s)
            applies.append(plain.last_step.apply_s)
    return Profile(
        statistics.median(steps),
        statistics.median(plans),
        statistics.median(applies),
        {kind: statistics.median(seconds) for kind, seconds in inside.items()},
        {kind: len(seconds) for kind, seconds in ops.seconds.items()},
        hollow_calls(ops, batch),
    )


def start(core: EngineCore, model: LoadedModel, batch: int, context: int) -> None:
    """Bring `batch` requests to where they decode."""
    rng = random.Random(0)
    params = SamplingParams(temperature=0, max_tokens=NUM_STEPS, ignore_eos=True)
    for i in range(batch):
        core.add(Request(i, model.chain(rng.randrange(100, 49000) for _ in range(context)), params, seed=0))
    while core.last_step is None or core.last_step.num_tokens != batch:
        core.step()


def hollow_calls(ops: TimedOps, batch: int) -> dict[str, float]:
    """Return the seconds of a call of each kind of module that has next to nothing to compute."""

    def weight(rows: int) -> RawTensor:
        return RawTensor("w", (rows, HOLLOW), "F32", memoryview(bytes(4 * rows * HOLLOW)))

    norm, angles = np.ones(HOLLOW, np.float32), np.ones((1, HOLLOW // 2), np.float32)
    attention = AttentionWeights(
        norm=norm,
        qkv=(weight(HOLLOW),) * 3,
        qkv_bias=None,
        q_norm=None,
        k_norm=None,
        out=weight(HOLLOW),
        post_norm=None,
        eps=1e-5,
        num_heads=1,
        num_kv_heads=1,
        head_dim=HOLLOW,
        scale=1.0,
        softcap=0.0,
        window=None,
        rope=Rope(angles, angles, False),
        group=0,
        slot=0,
    )
    pages = ops.pages(KVLayout(batch + 1, 1, 1, 1, HOLLOW))
    tables = np.arange(1, batch + 1, dtype=np.int32)[:, None]
    positions, cu_seqlens = np.zeros(batch, np.int32), np.arange(batch + 1, dtype=np.int32)
    step = ops.begin(StepInputs(positions, cu_seqlens, (tables,), (tables[:, 0].astype(np.int64),)))
    x = np.ones((batch, HOLLOW), np.float32)
    ids = np.zeros(batch, np.int32)
    three = (weight(HOLLOW),) * 3
    embed = ops.embedding(weight(1), 1.0)
    attend = ops.attention(attention, pages)
    feed = ops.feed_forward(FeedForwardWeights(norm, *three, None, 1e-5, "silu"))
    logits = ops.lm_head(LMHeadWeights(norm, weight(HOLLOW), 1e-5, 0.0))
    modules: dict[str, Callable[[], object]] = {
        "embedding": lambda: embed(ids),
        "attention": lambda: attend(x, step),
        "feed_forward": lambda: feed(x),
        "lm_head": lambda: logits(x),
    }
    seconds = {}
    for kind, call in modules.items():
        samples = []
        for _ in range(500):
            x[:] = 1
            begun = time.perf_counter()
            call()
            samples.append(time.perf_counter() - begun)
        seconds[kind] = statistics.median(samples)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
