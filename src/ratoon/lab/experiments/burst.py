"""`Burst`: many requests over few prefixes; conversations; documents asked in two orders.

Each workload gets a server started for it, with a pool too small for all documents at once, so that order
matters.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ratoon.errors import InvalidParameterError
from ratoon.lab.answer import Answer
from ratoon.lab.bench import Bench
from ratoon.lab.experiments.settings import setting
from ratoon.lab.experiments.workload import Workload, run_workload
from ratoon.lab.load import Session, Turn, poisson_offsets, session_of
from ratoon.lab.target import ServerSetup, Target
from ratoon.lab.token_source import TokenSource

WORKLOADS = ("prefixes", "conversations", "documents")
REPEAT_MODES = ("tile", "interleave")


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """The settings, named as in the load tools of vLLM and SGLang where they have one."""

    workloads: tuple[str, ...] = setting(WORKLOADS, "which of them to run", kind=str, choices=WORKLOADS)
    num_prompts: int = setting(32, "prefixes: requests in all")
    num_prefixes: int = setting(4, "prefixes: different ones")
    prefix_len: int = setting(
        512, "prefixes: tokens of each; conversations: tokens of the common system prompt"
    )
    suffix_len: int = setting(64, "tokens of each question or turn")
    output_len: int = setting(16, "tokens of each answer")
    request_rate: tuple[float, ...] = setting(
        (math.inf, 2.0), "prefixes: requests a second, with Poisson arrivals; inf: all at once", kind=float
    )
    max_concurrency: int | None = setting(
        None, "most requests under way (default: documents 1, else no limit)"
    )
    num_clients: int = setting(6, "conversations at the same time")
    num_rounds: int = setting(4, "turns of each conversation")
    num_documents: int = setting(6, "documents")
    document_length: int = setting(1_024, "tokens of each document")
    repeat_count: int = setting(3, "questions about each document")
    repeat_mode: tuple[str, ...] = setting(
        REPEAT_MODES, "order of the documents: A B C A B C, or A A B B C C", kind=str, choices=REPEAT_MODES
    )
    max_total_tokens: int = setting(
        4_608, "size of the server's KV pool in tokens; too small for all documents"
    )
    seed: int = setting(0, "of the prompts and the arrivals")

    def __post_init__(self) -> None:
        if self.num_prefixes > self.num_prompts:
            raise InvalidParameterError(
                f"{self.num_prompts} prompts cannot have {self.num_prefixes} prefixes."
            )

    def measure(self, bench: Bench) -> None:
        """Run the workloads that are not done yet."""
        setup = ServerSetup(pool_tokens=self.max_total_tokens)
        for name in self.names():
            run_workload(bench, name, setup, self.seed, partial(self._workload, name))

    def names(self) -> list[str]:
        """Return the names of the workloads in the order in which they run."""
        names: list[str] = []
        if "prefixes" in self.workloads:
            names += [f"prefixes, {_rate(rate)}" for rate in self.request_rate]
        if "conversations" in self.workloads:
            names.append("conversations")
        if "documents" in self.workloads:
            names += [f"documents, {mode}" for mode in self.repeat_mode]
        return names

    def _workload(self, name: str, target: Target, source: TokenSource) -> Workload:
        kind, *variants = name.split(", ")
        if kind == "prefixes":
            return self._prefixes(source, next(rate for rate in self.request_rate if _rate(rate) in variants))
        if kind == "conversations":
            return self._conversations(source)
        return self._documents(source, variants[0])

    def _prefixes(self, source: TokenSource, rate: float) -> Workload:
        """Request k asks about prefix k mod G, as requests to several applications mix."""
        prefixes = [
            source.tokens(f"{rate}/prefix/{index}", self.prefix_len) for index in range(self.num_prefixes)
        ]
        suffixes = source.parting(f"{rate}/suffixes", [self.suffix_len] * self.num_prompts)
        offsets_s = poisson_offsets(self.num_prompts, rate, self.seed)
        sessions = [
            session_of(self._turn(f"request {index}", prefixes[index % self.num_prefixes] + suffix, at_s))
            for index, (suffix, at_s) in enumerate(zip(suffixes, offsets_s, strict=True))
        ]
        return Workload(sessions, self.max_concurrency, self.num_prompts)

    def _conversations(self, source: TokenSource) -> Workload:
        """All clients talk at once, with one system prompt; a prompt holds all that was said before."""
        system = source.tokens("system", self.prefix_len)
        sessions = [self._conversation(source, client, system) for client in range(self.num_clients)]
        return Workload(sessions, self.max_concurrency, self.num_clients * self.num_rounds)

    def _conversation(self, source: TokenSource, client: int, system: list[int]) -> Session:
        history = list(system)
        for round_ in range(self.num_rounds):
            label = f"client {client} turn {round_}"
            history += source.tokens(label, self.suffix_len)
            answer: Answer = yield self._turn(label, history)
            # Where the server does not tell the ids of its reply, another reply stands in: it is no prefix
            # then.
            history += answer.output_ids or source.tokens(f"{label} reply", self.output_len)

    def _documents(self, source: TokenSource, mode: str) -> Workload:
        """Tile asks A B C A B C, interleave A A B B C C; one request at a time unless told otherwise."""
        documents = range(self.num_documents)
        rounds = range(self.repeat_count)
        order = (
            [(document, round_) for round_ in rounds for document in documents]
            if mode == "tile"
            else [(document, round_) for document in documents for round_ in rounds]
        )
        sessions = [session_of(turn) for turn in self._document_turns(source, mode, order)]
        return Workload(sessions, self.max_concurrency or 1, len(order))

    def _document_turns(self, source: TokenSource, mode: str, order: list[tuple[int, int]]) -> Iterator[Turn]:
        for document, round_ in order:
            text = source.tokens(f"{mode}/document/{document}", self.document_length)
            questions = source.parting(f"{mode}/questions/{document}", [self.suffix_len] * self.repeat_count)
            yield self._turn(f"document {document} question {round_}", text + questions[round_])

    def _turn(self, label: str, prompt: list[int], at_s: float = 0.0) -> Turn:
        return Turn(label, tuple(prompt), self.output_len, at_s)


def _rate(rate: float) -> str:
    return "at once" if rate == math.inf else f"Poisson {rate:g}/s"
