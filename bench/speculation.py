"""What speculative decoding gains: tokens per step and speed on three kinds of prompts, at batch 1 and 8.

    python bench/speculation.py [--draft MODEL] [--temperature T] [--tokens N] [--repeats N]

Prompts are texts and sources of this repository, so the answers can be had again. Every prompt is in the
cache before the clock starts: what is timed is decoding. Runs with and without speculation take turns on one
engine, and the median of the repeats is printed. Their answers are compared; they must be the same.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.text.chat_prompt import encode_chat

ROOT = Path(__file__).parents[1]
BATCHES = (1, 8)

FREE = (
    "Write a short story about a lighthouse keeper who finds a letter.",
    "Explain why the sky is blue.",
    "Give me five ideas for a birthday present.",
    "How do I learn to play the violin?",
    "Describe a city that is built on a frozen lake.",
    "What is the difference between a fruit and a vegetable?",
    "Write a letter to a friend who has moved abroad.",
    "Why did the Roman Empire fall?",
)


def prompts() -> dict[str, list[str]]:
    """Return eight prompts of each kind."""
    sections = (ROOT / "docs/concepts.md").read_text().split("\n## ")[1:9]
    sources = sorted((ROOT / "src/ratoon/cache").glob("*.py"))[:8]
    return {
        "summarise": [f"{text}\n\nSummarise this text in its own words." for text in sections],
        "edit code": [
            f"{path.read_text()[:2500]}\n\nRename the first class to Thing and write the code out again."
            for path in sources
        ],
        "free text": list(FREE),
    }


@dataclass
class Run:
    """What one arm did with one batch."""

    answers: list[list[int]]
    seconds: float
    num_turns: int
    """Steps, counted once for each request that was in them."""
    num_drafts: int
    num_accepted: int

    @property
    def num_tokens(self) -> int:
        """Tokens of all answers but their first ones, which belong to the prompts."""
        return sum(map(len, self.answers)) - len(self.answers)


class Bench:
    """One engine whose speculation can be switched off."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._core: EngineCore = build_core(model)
        self._speculation = self._core._speculation
        self._ids = count()

    def run(self, batch: Sequence[Sequence[int]], params: SamplingParams, *, speculative: bool) -> Run:
        """Answer a batch whose prompts are cached."""
        self._core._speculation = self._speculation if speculative else None
        self._answer(batch, replace(params, max_tokens=1))
        before = replace(self._core.draft_stats)
        begun = time.perf_counter()
        answers, num_turns = self._answer(batch, params)
        seconds = time.perf_counter() - begun
        after = self._core.draft_stats
        return Run(
            answers,
            seconds,
            num_turns,
            after.num_drafts - before.num_drafts,
            after.num_accepted_drafts - before.num_accepted_drafts,
        )

    def _answer(self, batch: Sequence[Sequence[int]], params: SamplingParams) -> tuple[list[list[int]], int]:
        requests = [
            Request(next(self._ids), self._model.chain(prompt), params, seed)
            for seed, prompt in enumerate(batch)
        ]
        for request in requests:
            self._core.add(request)
        num_turns = -len(requests)  # the steps of the prompts
        while self._core.has_work:
            num_turns += sum(1 for delta in self._core.step() if delta.token_ids)
        return [list(request.chain.tokens[request.num_prompt_tokens :]) for request in requests], num_turns


def main() -> None:
    """Measure and print a table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--draft", metavar="MODEL")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--num-speculative-tokens", type=int, default=EngineConfig().num_speculative_tokens)
    chosen = parser.parse_args()
    config = EngineConfig(
        speculative=chosen.draft or "ngram", num_speculative_tokens=chosen.num_speculative_tokens
    )
    model = load_model(chosen.model, config)
    template = model.chat_template()
    params = SamplingParams(temperature=chosen.temperature, max_tokens=chosen.tokens)
    print(f"{model.checkpoint.path.name}, {model.ops_name}, temperature {chosen.temperature:g}", flush=True)
    print("| prompts | batch | drafts | accepted | tokens per step | tokens/s | tokens/s off | speed-up |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kind, texts in prompts().items():
        encoded = [
            encode_chat(model.tokenizer, template, [{"role": "user", "content": text}]) for text in texts
        ]
        for size in BATCHES:
            batches = [encoded[i : i + size] for i in range(0, len(encoded) if size > 1 else 3, size)]
            bench = Bench(model)
            off, on = [], []
            for _ in range(chosen.repeats):
                off.append([bench.run(batch, params, speculative=False) for batch in batches])
                on.append([bench.run(batch, params, speculative=True) for batch in batches])
            assert [r.answers for runs in off for r in runs] == [r.answers for runs in on for r in runs]
            print(row(kind, size, off, on), flush=True)


def row(kind: str, size: int, off: Sequence[Sequence[Run]], on: Sequence[Sequence[Run]]) -> str:
    """Return a line of the table, from the repeats of both arms."""
    num_tokens = sum(run.num_tokens for run in on[0])
    rates = [
        statistics.median(num_tokens / sum(run.seconds for run in runs) for runs in arm) for arm in (on, off)
    ]
    num_drafts = sum(run.num_drafts for run in on[-1])
    num_accepted = sum(run.num_accepted for run in on[-1])
    share = f"{num_accepted / num_drafts:.0%}" if num_drafts else "none"
    per_step = num_tokens / sum(run.num_turns for run in on[-1])
    return (
        f"| {kind} | {size} | {num_drafts} | {share} | {per_step:.2f} "
        f"| {rates[0]:.0f} | {rates[1]:.0f} | {rates[0] / rates[1]:.2f} |"
    )


if __name__ == "__main__":
    main()
