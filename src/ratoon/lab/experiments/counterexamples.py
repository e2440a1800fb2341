"""`Counterexamples`: when a request must not hit, and the full hit.

Every case has a prompt of its own. It is computed; asked again (the control: it *is* in the cache); then the probe is
asked. What each should find is worked out from the token ids, before the server is asked.
"""

from dataclasses import dataclass

from ratoon.errors import LabError
from ratoon.lab.bench import Bench, warm_up
from ratoon.lab.prefix_model import PrefixModel
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource

POOL_TOKENS = 4_096
"""Small, so that evicting everything on purpose takes seconds."""


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt and under whom it is asked."""

    prompt: list[int]
    salt: str | None = None
    tenant: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One counterexample: `known` is in the cache when `probe` is asked, unless a flood evicts it first."""

    name: str
    why: str
    known: Question
    probe: Question
    flood: bool = False
    tenants: bool = False


CASES = (
    "first token different", "other salt", "other tenant", "evicted before the hit", "shared middle, not prefix",
    "partial last block", "full hit",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterexamples:
    """The settings."""

    prompt_blocks: int = 10
    """Length of the prompts, in blocks."""
    seed: int = 0

    def measure(self, bench: Bench) -> None:
        """Run the cases that are not done yet. A case that cannot be run is noted as failed."""
        for tenants in (False, True):
            names = [name for name in CASES if (name == "other tenant") == tenants and not bench.store.done(name)]
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
        for case in self._cases(source, target.block_size):
            if case.name not in names:
                continue
            bench.progress("cases", CASES.index(case.name), len(CASES))
            ideal = target.prefix_model()
            _ask(bench, target, case, "cold", case.known, ideal)
            _ask(bench, target, case, "control", case.known, ideal)
            if case.flood:
                _flood(target, source)
                ideal = target.prefix_model()  # all is forgotten
            _ask(bench, target, case, "probe", case.probe, ideal)

    def _cases(self, source: TokenSource, block_size: int) -> list[Case]:
        length = self.prompt_blocks * block_size

        def prompt(name: str) -> list[int]:
            return source.tokens(f"counterexamples/{name}", length)

        def other_start(tokens: list[int], count: int) -> list[int]:
            start, other = source.parting("counterexamples/starts", [count, count])
            return (other if tokens[0] == start[0] else start) + tokens[count:]

        first, salted, tenant, evicted, middle, partial, full = (prompt(name) for name in CASES)
        part = (self.prompt_blocks // 2) * block_size + block_size // 2
        ending, other_ending = source.parting("counterexamples/endings", [length - part] * 2)
        return [
            Case(
                CASES[0],
                "Each block is chained to the one before it, back to the first token.",
                Question(first),
                Question(other_start(first, 1)),
            ),
            Case(CASES[1], "The salt is part of the first block's key.", Question(salted, "a"), Question(salted, "b")),
            Case(
                CASES[2],
                "The server, not the client, decides whose cache a request may share.",
                Question(tenant),
                Question(tenant, tenant=1),
                tenants=True,
            ),
            Case(
                CASES[3],
                "Other prompts took all blocks of the pool in between.",
                Question(evicted),
                Question(evicted),
                flood=True,
            ),
            Case(
                CASES[4],
                "All but the first block is equal, at the same positions; without its prefix it is another content.",
                Question(middle),
                Question(other_start(middle, block_size)),
            ),
            Case(
                CASES[5],
                f"{part} tokens are shared; only full blocks of {block_size} can be found.",
                Question(partial[:part] + ending),
                Question(partial[:part] + other_ending),
            ),
            Case(CASES[6], "Every block is there; the last position is computed for its logits.", Question(full), Question(full)),
        ]  # fmt: skip


def _ask(
    bench: Bench, target: Target, case: Case, role: str, question: Question, ideal: PrefixModel
) -> None:
    namespace = f"{question.tenant}/{question.salt}"
    expected = ideal.predict(question.prompt, namespace)
    bench.ask(
        target,
        question.prompt,
        1,
        salt=question.salt,
        api_key=target.tenant_keys[question.tenant] if case.tenants and target.tenant_keys else None,
        key=case.name if role == "probe" else f"{case.name}/{role}",
        cell={"case": case.name},
        role=role,
        why=case.why,
        expected_tokens=expected,
    )
    ideal.add(question.prompt, namespace)


def _flood(target: Target, source: TokenSource) -> None:
    """Have other prompts computed until they have filled the pool."""
    if target.pool_tokens is None:
        raise LabError("The server does not tell how large its KV pool is, so its cache cannot be evicted on purpose.")
    length = min(1_024, target.pool_tokens // 4)
    for index in range(target.pool_tokens // length + 1):
        answer = target.client.complete(source.tokens(f"counterexamples/flood/{index}", length), 1)
        if answer.error is not None:
            raise LabError(f"A request that should evict others failed: {answer.error}.")
