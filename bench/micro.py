"""The small benchmarks: kernels by themselves, and the cache without a model.

A `Case` is made when its turn comes and then sampled; each call gives one sample of one figure or of several.
Shapes are SmolLM2-135M's (hidden 576, 9 heads over 3 KV heads of 64, 49,152 tokens), except that matrices are
1,536 deep, which every format divides.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import gguf
import numpy as np
from gguf import quants
from peers.cache_ratoon import CacheCycle

from ratoon.cache.manager import CacheManager
from ratoon.checkpoint.tensor import RawTensor
from ratoon.device.ops.dequantize import FORMATS
from ratoon.device.ops.native import NativeOps
from ratoon.device.ops.protocol import AttentionWeights, KVLayout, LMHeadWeights, Rope, StepInputs
from ratoon.engine.core import EngineCore
from ratoon.identity.hash_chain import HashChain
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.sched.limits import Limits
from ratoon.sched.scheduler import Scheduler
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.step import ChunkResult, StepPlan, StepResult

HIDDEN, VOCAB, DEPTH = 576, 49_152, 1536
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
BLOCK_SIZE = 16
LARGE = 128 << 20
"""Bytes of weights that come from memory each time."""

Figures = dict[str, float]
Sample = Callable[[], Figures]
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """`make` prepares what `ops` compute and returns the function that takes a sample."""

    name: str
    make: Callable[[NativeOps], Sample]


def timed(function: Callable[[], object], at_least_s: float = 0.01) -> float:
    """Return the seconds of one call, from as many as fill some time."""
    calls = 1
    while True:
        begun = time.perf_counter()
        for _ in range(calls):
            function()
        passed = time.perf_counter() - begun
        if passed >= at_least_s:
            return passed / calls
        calls *= 2


def stored(dtype: str, rows: int, columns: int) -> RawTensor:
    """Return a random weight; K-quants, which `gguf` cannot write, are random bits under small scales."""
    if dtype.endswith("K"):
        layout = FORMATS[dtype]
        data = RNG.integers(0, 256, (rows * columns // layout.num_elements, layout.num_bytes), np.uint8)
        for at in [208] if dtype == "Q6_K" else [0, 2]:
            data[:, at : at + 2] = np.full(1, 1e-4, np.float16).view(np.uint8)
    else:
        values = RNG.standard_normal((rows, columns), dtype=np.float32) / np.float32(np.sqrt(columns))
        data = quants.quantize(values, gguf.GGMLQuantizationType[dtype])
    return RawTensor("weight", (rows, columns), dtype, memoryview(np.ascontiguousarray(data).tobytes()))


def product(dtype: str, num_rows: int) -> Case:
    """Multiply one row by more weights than caches hold, or many by a square matrix."""

    def make(ops: NativeOps) -> Sample:
        tensor = stored(dtype, DEPTH, DEPTH)
        if num_rows == 1:
            many = memoryview(bytes(tensor.data) * (LARGE // len(tensor.data)))
            num_outputs = len(many) // len(tensor.data) * DEPTH
            tensor = RawTensor("weight", (num_outputs, DEPTH), dtype, many)
        multiply = ops.linear([tensor])
        x = RNG.standard_normal((num_rows, DEPTH), dtype=np.float32)

        def sample() -> Figures:
            seconds = timed(lambda: multiply(x))
            if num_rows == 1:
                return {f"product {dtype}, 1 row, GB/s": len(tensor.data) / seconds / 1e9}
            operations = 2 * num_rows * DEPTH * DEPTH
            return {f"product {dtype}, {num_rows} rows, GOP/s": operations / seconds / 1e9}

        return sample

    return Case(f"product {dtype}", make)


def attention(num_sequences: int, num_rows: int, context: int, *, shared: bool = False) -> Case:
    """Run an attention block on `num_rows` new tokens each; maybe all but the last block is shared."""
    kind = "prefill" if num_rows > 1 else "decode"
    own = f", {context - BLOCK_SIZE} shared" if shared else ""
    name = f"attention {kind}, {num_sequences} x {num_rows} at {context}{own}, ms"

    def make(ops: NativeOps) -> Sample:
        width = context // BLOCK_SIZE
        layout = KVLayout(1 + num_sequences * width, BLOCK_SIZE, 1, KV_HEADS, HEAD_DIM)
        angles = np.outer(np.arange(context), 10000.0 ** -np.linspace(0, 1, HEAD_DIM // 2))
        block = ops.attention(
            AttentionWeights(
                norm=np.ones(HIDDEN, np.float32),
                qkv=tuple(stored("Q4_1", n * HEAD_DIM, HIDDEN) for n in (HEADS, KV_HEADS, KV_HEADS)),
                qkv_bias=None,
                q_norm=None,
                k_norm=None,
                out=stored("Q4_1", HIDDEN, HEADS * HEAD_DIM),
                post_norm=None,
                eps=1e-5,
                num_heads=HEADS,
                num_kv_heads=KV_HEADS,
                head_dim=HEAD_DIM,
                scale=HEAD_DIM**-0.5,
                softcap=0.0,
                window=None,
                rope=Rope(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32), True),
                group=0,
                slot=0,
            ),
            ops.pages(layout),
        )
        tables = np.arange(1, 1 + num_sequences * width, dtype=np.int32).reshape(num_sequences, width)
        if shared:
            tables[:, :-1] = tables[0, :-1]
        positions = np.tile(np.arange(context - num_rows, context, dtype=np.int32), num_sequences)
        sequence = np.repeat(np.arange(num_sequences), num_rows)
        slots = (
            tables[sequence, positions // BLOCK_SIZE].astype(np.int64) * BLOCK_SIZE + positions % BLOCK_SIZE
        )
        cu_seqlens = np.arange(num_sequences + 1, dtype=np.int32) * np.int32(num_rows)
        inputs = StepInputs(positions, cu_seqlens, (tables,), (slots,))
        x = RNG.standard_normal((len(positions), HIDDEN), dtype=np.float32)
        return lambda: {name: 1e3 * timed(lambda: block(x.copy(), ops.begin(inputs)))}

    return Case(name, make)


def head(num_rows: int) -> Case:
    """Logits of some rows."""
    name = f"head, {num_rows} rows, ms"

    def make(ops: NativeOps) -> Sample:
        out = stored("Q8_0", VOCAB, HIDDEN)
        logits = ops.lm_head(LMHeadWeights(np.ones(HIDDEN, np.float32), out, 1e-5, 0.0))
        x = RNG.standard_normal((num_rows, HIDDEN), dtype=np.float32)
        return lambda: {name: 1e3 * timed(lambda: logits(x))}

    return Case(name, make)


def cache_cycle(num_tokens: int) -> Case:
    """Hash, match, reserve and commit, release: a prompt that is not there, then one that is."""

    def make(ops: NativeOps) -> Sample:
        cycle = CacheCycle(num_tokens, BLOCK_SIZE)
        rng = random.Random(0)

        def sample() -> Figures:
            seconds = cycle.run([rng.randrange(VOCAB) for _ in range(num_tokens)])
            return {f"cache, {num_tokens} tokens, {name}, ms": 1e3 * s for name, s in seconds.items()}

        for _ in range(3):  # then the pool is full
            sample()
        return sample

    return Case("cache", make)


class NoRunner:
    """Computes nothing and finds the same token always."""

    def execute(self, plan: StepPlan) -> StepResult:
        """See `Runner`."""
        return StepResult(
            plan.step_id, tuple(ChunkResult(c.request_id, (5,) if c.sample else ()) for c in plan.chunks)
        )


def decode_step(num_requests: int) -> Case:
    """Plan and apply of a step in which every running request decodes."""
    name = f"plan and apply, {num_requests} requests decode, µs"

    def make(ops: NativeOps) -> Sample:
        cache = CacheManager([CacheGroupSpec()], num_blocks=60_001, block_size=BLOCK_SIZE)
        limits = Limits(max_num_seqs=num_requests, max_num_batched_tokens=8192, max_model_len=2000)
        core = EngineCore(Scheduler(cache, limits), NoRunner())
        params = SamplingParams(temperature=0, max_tokens=1000, ignore_eos=True)
        for i in range(num_requests):
            # Lengths differ, so that in every step some block is filled.
            chain = HashChain(bytes(32), BLOCK_SIZE, tokens=[i + j for j in range(500 + i % BLOCK_SIZE)])
            core.add(Request(i, chain, params, seed=0))
        while core.last_step is None or core.last_step.num_tokens != num_requests:
            core.step()

        def sample() -> Figures:
            begun = core.totals.plan_s + core.totals.apply_s
            for _ in range(BLOCK_SIZE):
                core.step()
            return {name: 1e6 * (core.totals.plan_s + core.totals.apply_s - begun) / BLOCK_SIZE}

        return sample

    return Case(name, make)


CASES = (
    *(product(dtype, rows) for rows in (1, 16, 512) for dtype in FORMATS),
    attention(1, 256, 512),
    attention(1, 256, 2048),
    attention(1, 1, 1024),
    attention(8, 1, 1024),
    attention(16, 1, 1024, shared=True),
    head(1),
    head(8),
    cache_cycle(131_072),
    *(decode_step(count) for count in (1, 16, 256)),
)
