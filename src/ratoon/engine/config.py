"""`EngineConfig`: every setting of an engine, checked when it is made.

Names are vLLM's where they mean the same. The defaults are for a small machine: a few cores, a few gigabytes.
What a setting means and why it is what it is stands in the field's metadata; the command line finds it there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Self

from ratoon.cache.eviction.catalog import EVICTION_POLICIES
from ratoon.errors import InvalidParameterError
from ratoon.spec.kv_budget import VECTOR_BYTES

MEBIBYTE = 1 << 20


def _setting(default: Any, doc: str, choices: tuple[str, ...] = (), *, is_text: bool = False) -> Any:
    return field(default=default, metadata={"doc": doc, "choices": choices, "is_text": is_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Raises `InvalidParameterError` naming the first setting that is out of its range."""

    max_model_len: int | None = _setting(
        None, "longest request, prompt and output together, in tokens (default: what model and KV cache hold)"
    )
    max_num_seqs: int = _setting(
        32, "most requests that run in one step; beyond a few tens a CPU is busy and every answer gets slower"
    )
    max_num_batched_tokens: int = _setting(
        256, "most tokens computed in one step; more gain little, and answers in progress wait for them"
    )
    block_size: int = _setting(
        16, "tokens per KV block; prefixes are shared in whole blocks, and smaller ones cost more bookkeeping"
    )
    enable_prefix_caching: bool = _setting(True, "keep the blocks of earlier requests and reuse them")
    kv_cache_bytes: int = _setting(
        512 * MEBIBYTE, "memory for KV blocks, a hard limit; what is never used is never touched"
    )
    kv_cache_dtype: str = _setting(
        "int16", "storage of K and V; f32 takes twice the memory", tuple(VECTOR_BYTES)
    )
    adapter_bytes: int = _setting(256 * MEBIBYTE, "memory for LoRA adapters, a hard limit")
    threads: int | None = _setting(
        None,
        "threads of the native ops; results do not depend on it (default: one per core, or as many as the "
        "CPU quota allows)",
    )
    share_in_flight: bool = _setting(True, "let requests build on blocks others compute in the same step")
    eviction: str = _setting(
        "lru",
        "which idle block is forgotten first: the least recently used, one used but once (s3fifo), the "
        "cheapest to compute again (greedy-dual), of the least used subtree (subtree), or the least likely "
        "to come back soon, as learned (reuse)",
        tuple(EVICTION_POLICIES),
    )
    retention_percent: int = _setting(
        25,
        "most of the pool, in percent, that one tenant's retention hints may keep from being evicted first",
    )
    explain_blocks: int = _setting(
        0,
        "explain what of each prompt was not cached, remembering so many evicted blocks; 0 explains nothing",
    )
    speculative: str | None = _setting(
        None,
        "guess tokens and verify several in one step: ngram looks for what followed in the text before, "
        "a MODEL of the same vocabulary guesses itself; answers stay the same (default: off)",
        is_text=True,
    )
    num_speculative_tokens: int = _setting(
        5, "most guesses verified for a request in one step; fewer, or none, where they do not pay"
    )
    speculative_kv_cache_bytes: int = _setting(
        128 * MEBIBYTE, "memory for the KV blocks of a draft model, besides kv_cache_bytes"
    )
    ops: str = _setting(
        "auto",
        "the arithmetic: native (C++), reference (NumPy, slow), or auto: native where it was built",
        ("auto", "native", "reference"),
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check(setting.name, getattr(self, setting.name), setting.default, **setting.metadata)
        if self.threads is not None and self.threads > 1024:
            raise InvalidParameterError(f"threads must be at most 1024, not {self.threads}.")
        if self.retention_percent > 100:
            raise InvalidParameterError(
                f"retention_percent must be at most 100, not {self.retention_percent}."
            )

    @classmethod
    def from_settings(cls, settings: Mapping[str, object]) -> Self:
        """Make a config from keywords. An unknown name is an error that hints at the nearest known one."""
        known = [setting.name for setting in fields(cls)]
        for name in settings:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known)}."
                raise InvalidParameterError(f"There is no engine setting {name}.", hint=hint)
        return cls(**settings)  # type: ignore[arg-type]  # checked in __post_init__


def _check(
    name: str, value: object, default: object, *, doc: str, choices: tuple[str, ...], is_text: bool
) -> None:
    if value is None and default is None:
        return
    if is_text:
        if not isinstance(value, str) or not value:
            raise InvalidParameterError(f"{name} must be a text, not {value!r}.")
    elif choices:
        if value not in choices:
            raise InvalidParameterError(f"{name} must be {' or '.join(choices)}, not {value!r}.")
    elif isinstance(default, bool):
        if not isinstance(value, bool):
            raise InvalidParameterError(f"{name} must be true or false, not {value!r}.")
    else:
        least = 0 if default == 0 else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidParameterError(f"{name} must be a whole number of at least {least}, not {value!r}.")
