"""Ratoon: its engine stepped in this process, as vLLM's and OpenVINO's are."""

import time
from pathlib import Path

import ratoon
from ratoon.engine.build import build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams


class Ratoon:
    """One engine with its default settings, but for a pool that the work fills and goes round in."""

    def __init__(self, model: Path, threads: int) -> None:
        self._model = load_model(model, EngineConfig(threads=threads, kv_cache_bytes=256 << 20))
        self._core = build_core(self._model)
        self._next_id = 0
        self.description = f"ratoon {ratoon.__version__}, {model.name}, {self._model.ops_name}"

    def run(self, prompts: list[list[int]], max_tokens: int) -> list[list[float]]:
        """See `worker.Peer`."""
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        place = {}
        for i, prompt in enumerate(prompts):
            place[self._next_id] = i
            self._core.add(Request(self._next_id, self._model.chain(prompt), params, seed=0))
            self._next_id += 1
        times: list[list[float]] = [[] for _ in prompts]
        while self._core.has_work:
            deltas = self._core.step()
            now = time.perf_counter()
            for delta in deltas:
                times[place[delta.request_id]] += [now] * len(delta.token_ids)
        return times


def load(model: Path, threads: int) -> Ratoon:
    """See `worker`."""
    return Ratoon(model, threads)
