"""`Pair`: two requests share a long prefix and differ in the question.

Each repetition has a prefix of its own, so its first request is cold on a server that keeps running.
"""

import itertools
from dataclasses import dataclass

from ratoon.errors import InvalidParameterError, LabError
from ratoon.lab.bench import Bench, warm_up
from ratoon.lab.experiments.settings import setting
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource

ROLES = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The settings. By default the published shape: 1,727 and 1,729 tokens with 107 blocks in common."""

    prompt_lens: tuple[int, ...] = setting(
        (1_727, 1_729), "lengths of the first and the second prompt, in tokens"
    )
    prefix_len: int = setting(1_720, "tokens that both prompts begin with")
    output_len: int = setting(16, "tokens of each answer")
    repetitions: int = setting(10, "pairs; an interval takes 6")
    seed: int = setting(0, "of the prompts")

    def __post_init__(self) -> None:
        if len(self.prompt_lens) != 2:
            raise InvalidParameterError(f"A pair has two prompt lengths, not {len(self.prompt_lens)}.")
        if self.prefix_len >= min(self.prompt_lens):
            raise InvalidParameterError(
                f"A prefix of {self.prefix_len} tokens leaves no question in a prompt of "
                f"{min(self.prompt_lens)}."
            )

    def measure(self, bench: Bench) -> None:
        """Measure the repetitions that are not done yet. What cannot be measured is noted as failed."""
        todo = [number for number in range(self.repetitions) if not bench.store.done(f"{number}/{ROLES[-1]}")]
        try:
            if todo:
                with bench.servers.start(ServerSetup()) as target:
                    source = TokenSource(self.seed, target.vocabulary)
                    warm_up(target, source)
                    while todo:
                        bench.progress("pairs", self.repetitions - len(todo), self.repetitions)
                        self._ask_both(bench, target, source, todo[0])
                        todo.pop(0)
        except LabError as error:
            for repetition, role in itertools.product(todo, ROLES):
                bench.fail(error, key=f"{repetition}/{role}", cell={"request": role}, repetition=repetition)
        bench.progress("pairs", 1, 1)

    def _ask_both(self, bench: Bench, target: Target, source: TokenSource, repetition: int) -> None:
        # A repetition that was cut short comes again with another prefix: the server may know the first.
        attempt = sum(row["key"] == f"{repetition}/{ROLES[0]}" for row in bench.store.rows)
        label = f"pair/{repetition}/{attempt}"
        prefix = source.tokens(label, self.prefix_len)
        questions = source.parting(label, [length - self.prefix_len for length in self.prompt_lens])
        ideal = target.prefix_model()
        for role, question in zip(ROLES, questions, strict=True):
            prompt = prefix + question
            bench.ask(
                target,
                prompt,
                self.output_len,
                key=f"{repetition}/{role}",
                cell={"request": role},
                repetition=repetition,
                expected_tokens=ideal.predict(prompt),
            )
            ideal.add(prompt)
