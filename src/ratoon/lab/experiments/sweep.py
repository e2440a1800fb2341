"""`Sweep`: prefix length by output length by caching off or on by interference or none.

A round visits every group (prefix length, caching, interference) in random order, each with a server started
for it, so that a machine that slows down slows every group alike. A visit: warm-up on an unrelated prompt;
one request that computes the prefix; then for each output length, in random order, one measured request: the
prefix with a new question. With interference, other prefixes that together fill the pool come before each
measured request, so that an LRU cache has forgotten the prefix. Caching on and off are asked the very same
prompts in the same round: a pair.
"""

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ratoon.errors import LabError
from ratoon.lab.bench import Bench, compute, fill_pool, warm_up
from ratoon.lab.experiments.settings import setting
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource

T = TypeVar("T")

QUICK = {"prefix_lens": (128, 512), "output_lens": (1, 32), "repetitions": 3, "max_seconds": 100}
"""The settings behind `--quick`."""

POOL_SHARE = 1.5
"""Pool size as a multiple of the longest request: it fits with room to run, and is soon filled by others."""


@dataclass(frozen=True, slots=True)
class Group:
    """What one server is started for."""

    prefix_len: int
    caching: bool
    interference: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The settings. No new round is begun that would probably end after `max_seconds`."""

    prefix_lens: tuple[int, ...] = setting((128, 512, 2_048), "lengths of the common prefix, in tokens")
    output_lens: tuple[int, ...] = setting((1, 32, 256), "lengths of the answers, in tokens")
    question_len: int = setting(32, "tokens after the prefix, new in every request")
    repetitions: int = setting(6, "rounds; an interval takes 6 samples")
    max_seconds: float = setting(840, "begin no round that would end later", kind=float)
    seed: int = setting(0, "of the prompts and of every order")

    def measure(self, bench: Bench) -> None:
        """Measure what is not done yet, round after round."""
        began = time.perf_counter()
        longest_round = 0.0
        groups = [
            Group(*choice) for choice in itertools.product(self.prefix_lens, (False, True), (False, True))
        ]
        for repetition in range(self.repetitions):
            round_began = time.perf_counter()
            if round_began - began + longest_round > self.max_seconds:
                break
            for place, group in enumerate(self._shuffled(groups, repetition)):
                bench.progress("visits", repetition * len(groups) + place, self.repetitions * len(groups))
                self._visit(bench, repetition, group)
            longest_round = max(longest_round, time.perf_counter() - round_began)
        bench.progress("visits", 1, 1)

    def _visit(self, bench: Bench, repetition: int, group: Group) -> None:
        todo = [
            output_len
            for output_len in self._shuffled(self.output_lens, repetition, group)
            if not bench.store.done(_labels(repetition, group, output_len)["key"])
        ]
        longest = group.prefix_len + self.question_len + max(self.output_lens)
        setup = ServerSetup(caching=group.caching, pool_tokens=math.ceil(longest * POOL_SHARE))
        try:
            if todo:
                with bench.servers.start(setup) as target:
                    self._measure_group(bench, target, repetition, group, todo)
        except LabError as error:
            for output_len in todo:
                bench.fail(error, **_labels(repetition, group, output_len))

    def _measure_group(
        self, bench: Bench, target: Target, repetition: int, group: Group, todo: list[int]
    ) -> None:
        """Measure the output lengths in `todo` and take each off it once it is measured."""
        source = TokenSource(self.seed, target.vocabulary)
        warm_up(target, source)
        # With and without others the prefixes differ, so that a server that cannot be restarted does not know
        # them.
        label = f"sweep/{repetition}/{group.prefix_len}/{group.interference}"
        prefix = source.tokens(label, group.prefix_len)
        lengths = [self.question_len] * (1 + len(self.output_lens))
        priming, *questions = source.parting(label, lengths)
        question_of = dict(zip(self.output_lens, questions, strict=True))
        ideal = target.prefix_model()
        compute(target, prefix + priming)
        ideal.add(prefix + priming)
        while todo:
            output_len = todo[0]
            prompt = prefix + question_of[output_len]
            if group.interference:
                fill_pool(target, source, f"{label}/{output_len}/other", group.prefix_len)
            expected = ideal.predict(prompt) if group.caching and not group.interference else 0
            bench.ask(
                target, prompt, output_len, **_labels(repetition, group, output_len), expected_tokens=expected
            )
            ideal.add(prompt)
            todo.pop(0)

    def _shuffled(self, items: Sequence[T], *label: object) -> list[T]:
        return random.Random(f"{self.seed}/{label}").sample(items, len(items))


def _labels(repetition: int, group: Group, output_len: int) -> dict[str, Any]:
    """Return what identifies one measured request."""
    cell = {
        "prefix_len": group.prefix_len,
        "caching": "on" if group.caching else "off",
        "interference": "others" if group.interference else "none",
        "output_len": output_len,
    }
    return {"key": "/".join(map(str, (repetition, *cell.values()))), "cell": cell, "repetition": repetition}
