"""From a model's name to a `ServedModel` with a running engine, and the lines that describe it."""

from functools import cache

from ratoon.engine.async_engine import AsyncEngine
from ratoon.engine.build import LoadedModel, build_core, load_model
from ratoon.engine.config import EngineConfig
from ratoon.server.served_model import ServedModel
from ratoon.spec.cache_group import CacheGroupSpec
from ratoon.text.chat_template import load_chat_template
from ratoon.util.progress import TerminalProgress
from ratoon.util.sizes import format_bytes


def load_served_model(model: str, name: str, config: EngineConfig) -> ServedModel:
    """Load a model and start its engine; `name` is what clients call it. Raises some `RatoonError`."""
    with TerminalProgress() as progress:
        loaded = load_model(model, config, progress)
    core = build_core(loaded)
    return ServedModel(
        name=name,
        root=loaded.root,
        max_model_len=loaded.config.max_model_len or 0,
        core=core,
        engine=AsyncEngine(core),
        tokenizer=loaded.tokenizer,
        load_chat_template=cache(lambda: load_chat_template(loaded.checkpoint, loaded.tokenizer)),
        make_chain=loaded.chain,
        check_params=loaded.check_params,
        description=describe(loaded),
    )


def describe(loaded: LoadedModel) -> list[str]:
    """Return what an operator wants to know of a model and its pool."""
    budget, config = loaded.budget, loaded.config
    num_tokens = budget.usable_blocks // len(budget.groups) * budget.block_size
    reusable = f"{budget.block_size} tokens" if config.enable_prefix_caching else "none, caching is off"
    lines = [
        f"model       {loaded.checkpoint.path} ({loaded.spec.architecture}, {loaded.ops_name})",
        f"groups      {'; '.join(map(_describe_group, budget.groups))}",
        f"block size  {budget.block_size} tokens; minimum reusable prefix {reusable}",
        f"pool        {format_bytes(config.kv_cache_bytes)} for {num_tokens} tokens"
        f"; longest request {config.max_model_len}",
    ]
    if config.speculative is not None:
        who = "ngram" if loaded.draft is None else f"{loaded.draft.checkpoint.path}"
        lines.append(
            f"speculation {who}; at most {config.num_speculative_tokens} drafts of a request in a step"
        )
    return lines


def _describe_group(group: CacheGroupSpec) -> str:
    window = "" if group.window is None else f", window {group.window}"
    return f"{group.kind} attention in {len(group.layers)} layers{window}"
