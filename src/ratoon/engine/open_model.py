"""`OpenModel`: a model whose headers were read, and what can be refused before its weights are.

In order: the checkpoint is found and its shape read; a draft model is opened beside it and compared; settings
that were left open are resolved against model, pool and machine.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.checkpoint.formats import open_checkpoint
from ratoon.checkpoint.model_catalog import resolve_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.cores import usable_cores
from ratoon.errors import InvalidParameterError
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.spec.cache_groups import cache_groups
from ratoon.spec.kv_budget import KVBudget, kv_budget
from ratoon.spec.model_reader import read_model_spec
from ratoon.spec.model_spec import ModelSpec
from ratoon.text.load import load_tokenizer
from ratoon.text.tokenizer import Tokenizer
from ratoon.util.progress import Progress, no_progress
from ratoon.util.sizes import format_bytes

NGRAM = "ngram"
"""The setting `speculative` that names no model."""


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model whose headers were read: what it is, not yet what it weighs."""

    checkpoint: Checkpoint
    spec: ModelSpec
    groups: tuple[CacheGroupSpec, ...]

    def budget(self, config: EngineConfig) -> KVBudget:
        """Return the pool that is paid for. Raises `InvalidParameterError` if it could serve nothing."""
        return kv_budget(
            self.spec,
            self.groups,
            block_size=config.block_size,
            kv_dtype=config.kv_cache_dtype,
            kv_cache_bytes=config.kv_cache_bytes,
        )


def open_model(model: str | Path, progress: Progress = no_progress) -> OpenModel:
    """Find a model by pulled name, path or repo id, and read what it is. Raises some `RatoonError`."""
    checkpoint = open_checkpoint(resolve_model(model), progress)
    spec = read_model_spec(checkpoint)
    return OpenModel(checkpoint, spec, cache_groups(spec))


def open_draft(
    config: EngineConfig, target: OpenModel, tokenizer: Tokenizer, progress: Progress
) -> OpenModel | None:
    """Open the model that is to guess for `target`, if any. Raises `InvalidParameterError` if it cannot."""
    if config.speculative is None or config.speculative == NGRAM:
        return None
    draft = open_model(config.speculative, progress)
    same_size = draft.spec.vocab_size == target.spec.vocab_size
    if not same_size or not _same_tokens(load_tokenizer(draft.checkpoint), tokenizer):
        raise InvalidParameterError(
            f"{config.speculative} cannot guess for {target.checkpoint.path}: their vocabularies differ.",
            hint="Name a smaller model of the same family, or guess without a model: --speculative ngram.",
        )
    try:
        draft.budget(draft_config(config))
    except InvalidParameterError as error:
        raise InvalidParameterError(
            f"The draft model has no room: {error.message}",
            hint="Raise --speculative-kv-cache-bytes or lower --block-size.",
        ) from None
    return draft


def draft_config(config: EngineConfig) -> EngineConfig:
    """Return the settings that hold for the draft model: its own pool, its own context."""
    return replace(config, kv_cache_bytes=config.speculative_kv_cache_bytes, max_model_len=None)


def _same_tokens(one: Tokenizer, other: Tokenizer) -> bool:
    return one.vocab_size == other.vocab_size and all(
        one.token_bytes(i, skip_special=False) == other.token_bytes(i, skip_special=False)
        for i in range(one.vocab_size)
    )


def resolved(config: EngineConfig, spec: ModelSpec, budget: KVBudget) -> EngineConfig:
    """Replace None by what it stands for. Refuses what machine, model or pool cannot hold."""
    if config.kv_cache_bytes > (memory := _memory_bytes()):
        raise InvalidParameterError(
            f"{format_bytes(config.kv_cache_bytes)} of KV exceed this machine's {format_bytes(memory)}.",
            hint="Lower kv_cache_bytes.",
        )
    wanted = config.max_model_len
    if wanted is not None and wanted > spec.max_context:
        raise InvalidParameterError(
            f"max_model_len is {wanted}, but the model's context ends at {spec.max_context}."
        )
    longest = budget.max_tokens(wanted or spec.max_context, config.max_num_batched_tokens)
    if wanted is not None and longest < wanted:
        raise InvalidParameterError(
            f"max_model_len is {wanted}, but {format_bytes(config.kv_cache_bytes)} hold {longest} tokens.",
            hint="Raise kv_cache_bytes or lower max_model_len.",
        )
    return replace(config, max_model_len=longest, threads=config.threads or usable_cores())


def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
