"""`Counterexamples`: when a request must not hit, and the full hit.

Every case has a prompt of its own. It is computed; asked again (the control: it *is* in the cache); then the
probe is asked. What each should find is worked out from the token ids, before the server is asked.
"""

from dataclasses import dataclass

from ratoon.errors import InvalidParameterError, LabError
from ratoon.lab.bench import Bench, fill_pool, warm_up
from ratoon.lab.experiments.settings import setting
from ratoon.lab.prefix_model import PrefixModel
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource

POOL_TOKENS = 4_096
"""Small, so that evicting everything on purpose takes seconds."""

FLOOD_PROMPT_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and under whom it is asked."""

    prompt: list[int]
    salt: str | None = None
    tenant: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One counterexample: `known` is in the cache when `probe` is asked, unless it was evicted."""

    name: str
    known: Question
    probe: Question


CASES = {
    "first token different": "Each block is chained to the one before it, back to the first token.",
    "other salt": "The salt is part of the first block's key.",
    "other tenant": "The server, not the client, decides whose cache a request may share.",
    "evicted before the hit": "Other prompts took all blocks of the pool in between.",
    "shared middle, not prefix": "All blocks but the first are equal, but K and V hang on what is before.",
    "partial last block": "The prompts part within a block; only full blocks can be found.",
    "full hit": "Every block is there; the last position is computed for its logits.",
}
"""Every case with the reason why it hits what it hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexamples:
    """The settings."""

    prompt_blocks: int = setting(10, "length of the prompts, in blocks")
    seed: int = setting(0, "of the prompts")

    def __post_init__(self) -> None:
        if self.prompt_blocks < 2:
            raise InvalidParameterError("Prompts of fewer than 2 blocks have no middle.")

    def measure(self, bench: Bench) -> None:
        """Run the cases that are not done yet. A case that cannot be run is noted as failed."""
        for tenants in (False, True):
            names = [
                name for name in CASES if (name == "other tenant") == tenants and not bench.store.done(name)
            ]
            try:
                if names:
                    with bench.servers.start(ServerSetup(pool_tokens=POOL_TOKENS, tenants=tenants)) as target:
                        self._run(bench, target, names)
            except LabError as error:
                for name in names:
                    if not bench.store.done(name):
                        bench.fail(error, key=name, cell={"case": name})

    def _run(self, bench: Bench, target: Target, names: list[str]) -> None:
        source = TokenSource(self.seed, target.vocabulary)
        warm_up(target, source)
        for case in self._cases(source, target.block_size, bench):
            if case.name not in names:
                continue
            bench.progress("cases", list(CASES).index(case.name), len(CASES))
            ideal = target.prefix_model()
            _ask(bench, target, case, "cold", case.known, ideal)
            _ask(bench, target, case, "control", case.known, ideal)
            if case.name == "evicted before the hit":
                fill_pool(target, source, "counterexamples/flood", FLOOD_PROMPT_TOKENS)
                ideal = target.prefix_model()  # all is forgotten
            _ask(bench, target, case, "probe", case.probe, ideal)

    def _cases(self, source: TokenSource, block_size: int, bench: Bench) -> list[Case]:
        length = self.prompt_blocks * block_size

        def prompt(name: str) -> list[int]:
            # A case that is run again has another prompt: a server that keeps running knows the first.
            attempt = sum(row["key"] == f"{name}/cold" for row in bench.store.rows)
            return source.tokens(f"counterexamples/{name}/{attempt}", length)

        def other_start(tokens: list[int], count: int) -> list[int]:
            start, other = source.parting("counterexamples/starts", [count, count])
            return (other if tokens[0] == start[0] else start) + tokens[count:]

        first, salted, tenant, evicted, middle, partial, full = map(prompt, CASES)
        part = (self.prompt_blocks // 2) * block_size + block_size // 2
        ending, other_ending = source.parting("counterexamples/endings", [length - part] * 2)
        questions = (
            (Question(first), Question(other_start(first, 1))),
            (Question(salted, salt="a"), Question(salted, salt="b")),
            (Question(tenant, tenant=0), Question(tenant, tenant=1)),
            (Question(evicted), Question(evicted)),
            (Question(middle), Question(other_start(middle, block_size))),
            (Question(partial[:part] + ending), Question(partial[:part] + other_ending)),
            (Question(full), Question(full)),
        )
        return [Case(name, known, probe) for name, (known, probe) in zip(CASES, questions, strict=True)]


def _ask(bench: Bench, target: Target, case: Case, role: str, question: Question, ideal: PrefixModel) -> None:
    namespace = f"{question.tenant}/{question.salt}"
    expected = ideal.predict(question.prompt, namespace)
    bench.ask(
        target,
        question.prompt,
        1,
        salt=question.salt,
        api_key=target.tenant_keys[question.tenant] if target.tenant_keys else None,
        key=case.name if role == "probe" else f"{case.name}/{role}",
        cell={"case": case.name},
        role=role,
        expected_tokens=expected,
    )
    ideal.add(question.prompt, namespace)
