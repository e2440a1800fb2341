"""A model that is nothing but integers, for a server that is real in everything else.

The fake KV of a position is a number made from the number before it and the token, read through the block
tables, and the next token is made from the last number. So an answer is right only if every block it was
built on was.
"""

import hashlib
import threading
from collections.abc import Iterable

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from ratoon.errors import InvalidParameterError
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.sampling_params import SamplingParams
from ratoon.step import ChunkResult, Logprobs, ScheduledChunk, StepPlan, StepResult
from ratoon.text.tokenizer import Tokenizer

END = 256
"""The end-of-sequence token; the tokens below it are bytes."""

VOCAB_SIZE = 257
BLOCK_SIZE = 4
HIDDEN_SIZE = 3
ROOT = hashlib.sha256(b"a fake model").digest()


def mix(*values: object) -> int:
    """Return a number that depends on all the values."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=8).digest())


class FakeRunner:
    """Executes plans at once, or as many as are allowed; raises instead while `num_failures` is above 0."""

    def __init__(self) -> None:
        self.kv: dict[tuple[int, int], int] = {}
        self.num_failures = 0
        self.num_begun = 0
        self._allowed: int | None = None
        self._changed = threading.Condition()

    def hold(self) -> None:
        """Let every step wait from now on."""
        self.allow(None, 0)

    def allow(self, *counts: int | None) -> None:
        """Let one step after the other pass: `allow(3)` three more than now, `allow(None)` all."""
        with self._changed:
            for count in counts:
                self._allowed = None if count is None else (self._allowed or 0) + count
            self._changed.notify_all()

    def wait_for_steps(self, count: int) -> None:
        """Return when so many steps have begun since the start."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_begun >= count, timeout=30)

    def execute(self, plan: StepPlan) -> StepResult:
        """Compute the chunks one after the other, so that a later one may build on an earlier one."""
        with self._changed:
            self.num_begun += 1
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._allowed != 0, timeout=30), (
                "a test left a step waiting"
            )
            if self._allowed is not None:
                self._allowed -= 1
        if self.num_failures:
            self.num_failures -= 1
            raise RuntimeError("the fake runner was told to fail")
        return StepResult(plan.step_id, tuple(self._compute(chunk) for chunk in plan.chunks))

    def _compute(self, chunk: ScheduledChunk) -> ChunkResult:
        (table,) = chunk.block_tables
        state = 0 if chunk.adapter is None else int.from_bytes(chunk.adapter[:8])
        if chunk.first_position > 0:
            state = self.kv[
                table[(chunk.first_position - 1) // BLOCK_SIZE], (chunk.first_position - 1) % BLOCK_SIZE
            ]
        prompt_logprobs: list[Logprobs | None] = []
        inputs: list[object] = list(chunk.token_ids)
        for rows in chunk.input_rows:
            size = len(rows.data) // rows.num_rows
            for i in range(rows.num_rows):
                inputs[rows.offset + i] = (rows.dtype, rows.data[i * size : (i + 1) * size])
        for place, token in enumerate(inputs):
            position = chunk.first_position + place
            state = mix(state, token)
            if position >= chunk.write_from:
                self.kv[table[position // BLOCK_SIZE], position % BLOCK_SIZE] = state
            if chunk.prompt_logprobs is not None and place < len(chunk.prompt_targets):
                target = chunk.prompt_targets[place]
                prompt_logprobs.append(
                    None if target is None else _logprobs(state, chunk.prompt_logprobs, target)
                )
        if chunk.sample is None:
            return ChunkResult(chunk.request_id, prompt_logprobs=tuple(prompt_logprobs))
        params = chunk.sample.params
        choice = (
            state if params.temperature == 0 else mix(state, chunk.sample.seed, chunk.sample.num_generated)
        )
        token = END if choice % 41 == 0 and END not in chunk.sample.banned_token_ids else 32 + choice % 95
        if params.logit_bias:
            token = max(params.logit_bias, key=lambda token_id: params.logit_bias[token_id])
        logprobs = () if params.logprobs is None else (_logprobs(state, params.logprobs, token),)
        return ChunkResult(chunk.request_id, (token,), 0, logprobs, tuple(prompt_logprobs))


def _logprobs(state: int, num_best: int, token: int) -> Logprobs:
    best = [((state + i) % 256, -1.0 - i) for i in range(num_best)]
    return tuple(best) if token in dict(best) else (*best, (token, -50.0))


def make_tokenizer() -> Tokenizer:
    """Return a tokenizer whose tokens are bytes."""
    to_character = {value: key for key, value in _byte_characters().items()}
    whole = tokenizers.Tokenizer(models.BPE(vocab={to_character[b]: b for b in range(256)}, merges=[]))
    whole.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    whole.decoder = decoders.ByteLevel()
    whole.add_special_tokens([AddedToken("<|end|>", special=True)])
    return Tokenizer(whole.to_str(), ends=(END,))


def _byte_characters() -> dict[str, int]:
    """Return GPT-2's alphabet: what each byte is written as."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


def make_chain(token_ids: Iterable[int], extra_keys: ExtraKeys) -> HashChain:
    """Return a prompt's chain, as a loaded model does."""
    chain = HashChain(ROOT, BLOCK_SIZE, extra_keys, token_ids)
    if max(chain.tokens, default=0) >= VOCAB_SIZE:
        raise InvalidParameterError("A token id is outside the fake vocabulary.")
    return chain


def check_params(params: SamplingParams) -> None:
    """Refuse token ids outside the vocabulary."""
    if max((*params.logit_bias, *params.stop_token_ids), default=0) >= VOCAB_SIZE:
        raise InvalidParameterError("A token id is outside the fake vocabulary.")
