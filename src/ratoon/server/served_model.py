"""`ServedModel`: what the endpoints need of a running engine, and how it is loaded and described."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from ratoon.chat.chat_model import ChatModel, chat_model
from ratoon.engine.adapters import AdapterStore, LoadedAdapter
from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.engine.request_factory import RequestFactory
from ratoon.identity.digest import digest
from ratoon.request.structured_outputs import StructuredOutputs
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.text.tokenizer import Tokenizer
from ratoon.util.progress import TerminalProgress
from ratoon.util.sizes import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """An engine with its texts and its identity.

    `chat` raises `ChatTemplateError` where the model has no chat template. `check_form` compiles the form
    that an answer must have, and raises `GrammarError`; no answer can have one unless it `has_grammars`.
    `description` are the lines printed at the start.
    """

    name: str
    root: bytes
    max_model_len: int
    hidden_size: int
    vocab_size: int
    engine: AsyncEngine
    tokenizer: Tokenizer
    adapters: AdapterStore
    chat: Callable[[], ChatModel]
    requests: RequestFactory
    check_form: Callable[[StructuredOutputs], None]
    has_grammars: bool
    block_size: int
    description: Sequence[str] = ()

    def fingerprint(self, adapter: LoadedAdapter | None) -> str:
        """Return OpenAI's `system_fingerprint`: where it is equal, equal requests get equal answers."""
        identity = self.root if adapter is None else digest(self.root + adapter.digest)
        return f"fp_{identity.hex()[:16]}"


def load_served_model(
    model: str,
    name: str,
    config: EngineConfig,
    adapters: Mapping[str, Path],
    chat_template: Path | None = None,
    **parsers: str | None,
) -> ServedModel:
    """Load a model with its adapters and start its engine; `name` is what clients call the model.

    `chat_template` is a file that takes the place of the model's own. `parsers` are those of `chat_model`.
    Raises some `RatoonError`.
    """
    with TerminalProgress() as progress:
        loaded = load_model(model, config, progress, adapters=adapters, chat_template=chat_template)
    return ServedModel(
        name=name,
        root=loaded.root,
        max_model_len=loaded.config.max_model_len or 0,
        hidden_size=loaded.spec.hidden_size,
        vocab_size=loaded.spec.vocab_size,
        engine=AsyncEngine(build_core(loaded), cores=loaded.cores),
        tokenizer=loaded.tokenizer,
        adapters=loaded.adapters,
        chat=cache(lambda: chat_model(loaded.chat_template(), loaded.tokenizer, **parsers)),
        requests=RequestFactory(loaded.chain, loaded.check_params),
        check_form=loaded.grammars.check,
        has_grammars=loaded.grammars.is_available,
        block_size=loaded.budget.block_size,
        description=describe(loaded),
    )


def describe(loaded: LoadedModel) -> list[str]:
    """Return what an operator wants to know of a model and its pool."""
    budget, config = loaded.budget, loaded.config
    num_tokens = budget.num_usable_blocks // len(budget.groups) * budget.block_size
    reusable = f"{budget.block_size} tokens" if config.enable_prefix_caching else "none, caching is off"
    lines = [
        f"model       {loaded.checkpoint.path} ({loaded.spec.architecture}, {loaded.ops_name})",
        f"groups      {_describe_groups(budget.groups)}",
        f"block size  {budget.block_size} tokens; minimum reusable prefix {reusable}",
        f"pool        {format_bytes(config.kv_cache_bytes)} for {num_tokens} tokens"
        f"; longest request {config.max_model_len}",
        f"adapters    {_describe_adapters(loaded.adapters)}",
    ]
    if config.speculative is not None:
        who = "ngram" if loaded.draft is None else f"{loaded.draft.checkpoint.path}"
        lines.append(
            f"speculation {who}; at most {config.num_speculative_tokens} drafts of a request in a step"
        )
    return lines


def _describe_adapters(adapters: AdapterStore) -> str:
    names = ", ".join(adapters.by_name) or "none"
    return f"{names}; {format_bytes(adapters.num_bytes)} of {format_bytes(adapters.budget_bytes)}"


def _describe_groups(groups: Iterable[CacheGroupSpec]) -> str:
    """Return what stands in the groups; those that look equally far back lie side by side."""
    parts = []
    for window, alike in groupby(groups, key=lambda group: group.window):
        sizes = [len(group.layers) for group in alike]
        attention = "full attention" if window is None else f"a window of {window} tokens"
        shared = f", in {len(sizes)} groups" if len(sizes) > 1 else ""
        parts.append(f"{attention} in {sum(sizes)} layers{shared}")
    return "; ".join(parts)
