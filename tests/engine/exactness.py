"""Random cases for the promise itself: a hit changes nothing but the time.

Batches of requests run on engines with random budgets and pools, some so small that requests are preempted.
A batch mixes tokens and input rows, the model alone and its adapters, free answers and those with a form;
half of the engines verify drafts, right ones and wrong ones. The logits of every request, at each position
that it generates, are compared as bytes with those of the same request alone on a cold cache, computed once.

Whatever else a request may carry becomes a field of `Ask`, drawn in `draw_asks` and put into the request in
`Ask.request`; whatever else an engine may do is drawn in `draw_engine`. The comparison stays as it is.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ratoon.device.ops.protocol import Floats
from ratoon.draft.prompt_lookup import PromptLookup
from ratoon.draft.speculation import Speculation
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.core import EngineCore
from ratoon.engine.open_model import open_model
from ratoon.engine.prompt_parts import PromptTokens, join_parts, read_part
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.request.finish import Usage
from ratoon.request.request import Request
from ratoon.request.sampling_params import SamplingParams
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.spec.model_spec import ModelSpec

LONG_ANSWER = 16
FORMS = (
    StructuredOutputs(json={"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 9}),
    StructuredOutputs(regex="([a-z]{1,8} ){12}(and so it goes, and goes on){2}"),
)
"""Forms of answers that are long enough; the second forces many tokens at its end."""

Part = list[int] | NDArray[np.floating[Any]]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to try, and how much of it.

    `path_fixture` gives its file. Of `num_asks` different requests the first have prompts of `lengths`, the
    others of random ones up to the longest of these. The pool has `num_blocks` blocks.
    """

    name: str
    path_fixture: str
    lengths: tuple[int, ...]
    num_asks: int
    num_blocks: int
    num_cases: int
    window: int | None = None


SMOLLM2 = Subject(
    name="smollm2",
    path_fixture="smollm2_path",
    lengths=(1, 700, 16, 32, 17),
    num_asks=80,
    num_blocks=240,
    num_cases=20,
)
GEMMA3 = Subject(
    name="gemma3",
    path_fixture="gemma_path",
    lengths=(1, 1100, 16, 511, 512, 513, 528, 700, 900),
    num_asks=24,
    num_blocks=1200,
    num_cases=20,
    window=512,
)


@dataclass(frozen=True, eq=False)
class Ask:
    """What makes a request what it is; everything else must not matter. `adapter` is a name."""

    prompt: PromptTokens
    params: SamplingParams
    seed: int = 0
    adapter: str | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """Positions of the prompt."""
        return len(self.prompt.ids)

    def request(self, model: LoadedModel, number: int) -> Request:
        """Return a request for this."""
        adapter = None if self.adapter is None else model.adapters.get(self.adapter)
        digest = None if adapter is None else adapter.digest
        extra_keys = ExtraKeys(adapter=digest, media=self.prompt.media)
        chain = model.chain(self.prompt.ids, extra_keys)
        rows = self.prompt.input_rows
        return Request(number, chain, self.params, self.seed, rows=rows, adapter=adapter)


@dataclass(frozen=True)
class Answered:
    """What came of a request; `logits` has the bytes of each position that was generated from."""

    token_ids: list[int]
    logits: list[bytes]
    usage: Usage

    def has_bits_of(self, other: "Answered") -> bool:
        """Whether tokens and logits are the same."""
        return self.token_ids == other.token_ids and self.logits == other.logits


class Guesses(Speculation):
    """Knows the answers, and guesses the next tokens right up to a random place."""

    def __init__(self, rng: random.Random, vocab_size: int, answer: Callable[[Ask], Sequence[int]]) -> None:
        super().__init__(PromptLookup(), 1)
        self.asks: dict[int, Ask] = {}
        self._rng = rng
        self._vocab_size = vocab_size
        self._answer = answer

    def propose(self, requests: Sequence[Request]) -> dict[int, Sequence[int]]:
        """Guess for everybody, and more than can be right."""
        return {request.id: self._guess(request) for request in requests}

    def _guess(self, request: Request) -> list[int]:
        answer = self._answer(self.asks[request.id])
        right = answer[request.num_generated :][: self._rng.choice((0, 1, 2, 9))]
        return [*right, *(self._rng.randrange(self._vocab_size) for _ in range(self._rng.choice((0, 1, 4))))]


class Bench:
    """Runs batches on one engine and keeps what every request's positions gave."""

    def __init__(
        self,
        model: LoadedModel,
        *,
        num_blocks: int | None = None,
        guesses: Guesses | None = None,
        **settings: object,
    ) -> None:
        self.model = model
        self._guesses = guesses
        self._logits: dict[int, list[bytes]] = {}
        if num_blocks is not None:
            settings["kv_cache_bytes"] = (num_blocks + 1) * model.budget.page_bytes
        config = replace(model.config, **settings)  # type: ignore[arg-type]
        self.core: EngineCore = build_core(model, config, observe_logits=self._observe)
        self.core._speculation = guesses

    def add(self, ask: Ask) -> Request:
        """Queue a request for it."""
        request = ask.request(self.model, len(self._logits))
        self._logits[request.id] = []
        if self._guesses is not None:
            self._guesses.asks[request.id] = ask
        self.core.add(request)
        return request

    def run(self, asks: Iterable[Ask]) -> list[Answered]:
        """Submit all at once and step until none is left."""
        return self.finish([self.add(ask) for ask in asks])

    def finish(self, requests: Iterable[Request]) -> list[Answered]:
        """Step until none is left; return what came of these."""
        usages: dict[int, Usage] = {}
        while self.core.has_work:
            for delta in self.core.step():
                assert delta.error is None, delta.error
                if delta.usage is not None:
                    usages[delta.request_id] = delta.usage
        return [
            Answered(list(r.chain.tokens[r.num_prompt_tokens :]), self._logits[r.id], usages[r.id])
            for r in requests
        ]

    def _observe(self, request_id: int, position: int, logits: bytes) -> None:
        self._logits[request_id].append(logits)


class ColdAnswers:
    """Each request alone on a cold cache, the whole prompt in one chunk, without drafts."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._known: dict[Ask, Answered] = {}

    def of(self, ask: Ask) -> Answered:
        """Return the answer, computed at the first time."""
        if ask not in self._known:
            bench = Bench(self._model, max_num_batched_tokens=2048, enable_prefix_caching=False)
            [self._known[ask]] = bench.run([ask])
        return self._known[ask]


def load(subject: Subject, path: Path, threads: int, adapters: dict[str, Path] | None = None) -> LoadedModel:
    """Load the model with the native ops."""
    page_bytes = open_model(path).budget(EngineConfig()).page_bytes
    kv_cache_bytes = (subject.num_blocks + 1) * page_bytes
    model = load_model(path, EngineConfig(ops="native", threads=threads, kv_cache_bytes=kv_cache_bytes))
    for name, folder in (adapters or {}).items():
        model.adapters.load(name, folder)
    return model


def write_adapters(folder: Path, spec: ModelSpec, write_adapter: Callable[..., Path]) -> dict[str, Path]:
    """Write two random adapters: one of every weight, one of high rank of attention in every other layer."""
    q, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    hidden, inner = spec.hidden_size, spec.intermediate_size
    attention = {"q_proj": (q, hidden), "k_proj": (kv, hidden), "v_proj": (kv, hidden), "o_proj": (hidden, q)}
    mlp = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    shapes = {f"self_attn.{name}": shape for name, shape in attention.items()}
    every = shapes | {f"mlp.{name}": shape for name, shape in mlp.items()}

    def write(name: str, modules: dict[str, tuple[int, int]], layers: range, rank: int, **how: Any) -> Path:
        rng = np.random.default_rng(rank)
        pairs = {
            f"model.layers.{layer}.{module}": (
                (rng.standard_normal((rank, inputs)) / np.sqrt(inputs)).astype(np.float32),
                (rng.standard_normal((outputs, rank)) / 20).astype(np.float16),
            )
            for layer in layers
            for module, (outputs, inputs) in modules.items()
        }
        return write_adapter(folder / name, pairs, **how)

    return {
        "all": write("all", every, range(spec.num_layers), 4),
        "some": write("some", shapes, range(0, spec.num_layers, 2), 33, use_rslora=True),
    }


def table_rows(model: LoadedModel, token_ids: Sequence[int]) -> Floats:
    """Return the rows that the model looks up for tokens, as the first layer reads them."""
    return model.decoder._embedding(np.array(token_ids, np.int32))


def draw_document(rng: random.Random, model: LoadedModel, length: int) -> list[Part]:
    """Return parts of so many positions: tokens, rows of tokens, and rows like no token's."""
    numpy_rng = np.random.default_rng(rng.randrange(2**32))
    parts: list[Part] = []
    while length:
        size = min(length, rng.choice((1, 2, 7, 16, 17, rng.randint(1, 40), rng.randint(1, 300))))
        length -= size
        ids = [rng.randrange(model.spec.vocab_size) for _ in range(size)]
        if size > 40 or rng.random() < 0.4:
            parts.append(ids)
            continue
        rows = table_rows(model, ids)
        noise = rows + numpy_rng.normal(0, rows.std(), rows.shape).astype(np.float32)
        parts.append(rng.choice((rows, noise, noise.astype(np.float16))))
    return parts


def beginning(parts: Iterable[Part], length: int) -> list[Part]:
    """Return the first positions of a document; rows that are cut are other rows than the whole ones."""
    taken = []
    for part in parts:
        if length > 0:
            taken.append(part[:length])
            length -= len(part)
    return taken


def draw_asks(rng: random.Random, subject: Subject, model: LoadedModel) -> list[Ask]:
    """Return requests over six documents, many of them short, some long; half have rows.

    Some differ from another one in the adapter alone.
    """
    longest, vocab_size = max(subject.lengths), model.spec.vocab_size
    documents = [draw_document(rng, model, longest) for _ in range(3)]
    documents += [[[rng.randrange(vocab_size) for _ in range(longest)]] for _ in range(3)]
    adapters = (None, *model.adapters.by_name)
    asks: list[Ask] = []
    for number in range(subject.num_asks):
        if number >= len(subject.lengths) and rng.random() < 0.3:
            asks.append(replace(rng.choice(asks), adapter=rng.choice(adapters)))
            continue
        length = round(longest ** rng.uniform(0.1, 1))
        if number < len(subject.lengths):
            length = subject.lengths[number]
        shared = rng.choice((0, length, length // 16 * 16, rng.randrange(length)))
        tail = [rng.randrange(vocab_size) for _ in range(length - shared)]
        parts = [*beginning(rng.choice(documents), shared), tail]
        prompt = join_parts([read_part(part, model.spec.hidden_size) for part in parts], model.tokenizer)
        assert len(prompt.ids) == length
        params = SamplingParams(
            max_tokens=rng.randint(1, 4) if number % 2 else LONG_ANSWER,
            temperature=rng.choice((0, 0.3, 1, 1.5)),
            top_p=0.95,
            repetition_penalty=rng.choice((1, 1.1)),
            ignore_eos=True,
        )
        if rng.random() < 0.2:
            params = replace(params, ignore_eos=False, structured_outputs=rng.choice(FORMS))
        asks.append(Ask(prompt, params, rng.randrange(2**64), rng.choice(adapters)))
    return asks


def draw_engine(
    rng: random.Random,
    subject: Subject,
    model: LoadedModel,
    cold: ColdAnswers,
    asks: Sequence[Ask],
    *,
    roomy: bool,
    guessing: bool,
) -> tuple[Bench, list[list[Ask]]]:
    """Return an engine, its pool roomy or too small for growing answers, and five batches for it."""
    budget = round(512 ** rng.random())
    settings: dict[str, Any] = {"share_in_flight": rng.random() < 0.5}
    if guessing:
        settings["guesses"] = Guesses(rng, model.spec.vocab_size, lambda ask: cold.of(ask).token_ids)
    if roomy:
        fitting = [
            ask for ask in asks if ask.num_prompt_tokens <= 20 * budget
        ]  # small budgets take many steps
        batches = [rng.choices(fitting, k=rng.randint(1, 8)) for _ in range(5)]
        return Bench(model, max_num_batched_tokens=budget, **settings), batches
    budget = max(budget, 16)
    limit = min(20 * budget, subject.window or 20 * budget)  # beyond a window, memory hardly grows
    growing = [ask for ask in asks if ask.params.max_tokens == LONG_ANSWER and ask.num_prompt_tokens <= limit]
    chosen = rng.sample(growing, k=rng.randint(2, min(6, len(growing))))
    num_blocks = tight_pool(model, chosen)
    bench = Bench(model, num_blocks=num_blocks, max_num_batched_tokens=budget, **settings)
    return bench, [rng.sample(chosen, k=len(chosen)) for _ in range(5)]


def tight_pool(model: LoadedModel, asks: Sequence[Ask]) -> int:
    """Return how many blocks hold all prompts, or the longest of the requests, and hardly more."""
    blocks_for = Bench(model).core.scheduler.cache.blocks_for
    prompts = {block_hash for ask in asks for block_hash in ask.request(model, 0).chain.block_hashes}
    num_blocks = (len(prompts) + len(asks)) * len(model.budget.groups) + 1
    return max(num_blocks, *(blocks_for(ask.num_prompt_tokens + LONG_ANSWER) for ask in asks))


def check_random_cases(
    rng: random.Random,
    subject: Subject,
    model: LoadedModel,
    cold: ColdAnswers,
    asks: Sequence[Ask],
    num_cases: int,
) -> dict[str, int]:
    """Run batches and compare; return what they did, which must be something of everything."""
    num_done = 0
    seen = dict.fromkeys(("hit tokens", "preemptions", "right drafts", "wrong drafts"), 0)
    kinds = cycle(product((True, False), repeat=2))
    while num_done < num_cases:
        roomy, guessing = next(kinds)
        bench, batches = draw_engine(rng, subject, model, cold, asks, roomy=roomy, guessing=guessing)
        # The cold answers come first: they are written to the same pages.
        expected = {ask: cold.of(ask) for batch in batches for ask in batch}
        scheduler, drafts = bench.core.scheduler, bench.core.draft_stats
        for batch in batches:
            num_done += 1
            for ask, answered in zip(batch, bench.run(batch), strict=True):
                assert answered.has_bits_of(expected[ask]), (
                    f"case {num_done}: prompt of {ask.num_prompt_tokens}, rows in {len(ask.prompt.rows)} "
                    f"parts, adapter {ask.adapter}, {answered.usage.cached_tokens} cached, "
                    f"batch of {len(batch)}, {scheduler.cache.num_usable_blocks} blocks, {drafts}"
                )
        assert scheduler.cache.num_free_blocks == scheduler.cache.num_usable_blocks
        seen["hit tokens"] += scheduler.cache.stats.num_hit_tokens
        seen["preemptions"] += scheduler.num_preemptions
        seen["right drafts"] += drafts.num_accepted_drafts
        seen["wrong drafts"] += drafts.num_drafts - drafts.num_accepted_drafts
    assert all(seen.values()), f"the cases are to do something of each of these: {seen}"
    return seen
