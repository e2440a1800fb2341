"""`ratoon inspect MODEL`: a model's shape, and what its KV cache costs. Reads headers only."""

import argparse
import json
from collections import Counter
from dataclasses import replace
from math import prod
from typing import Any

from ratoon.cli.engine_options import add_engine_options, add_model_argument, engine_settings
from ratoon.engine.build import make_ops
from ratoon.engine.config import EngineConfig
from ratoon.engine.open_model import OpenModel, open_model
from ratoon.util.progress import TerminalProgress
from ratoon.util.sizes import format_bytes

BUDGETS = tuple(2**power for power in range(26, 34))
"""64 MiB to 8 GiB, shown beside the budget that was asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare model and options."""
    add_model_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one object")
    add_engine_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what there is to know, for people or as JSON."""
    config = EngineConfig.from_settings(engine_settings(arguments))
    with TerminalProgress() as progress:
        opened = open_model(arguments.model, progress)
    facts = describe(opened, config)
    print(json.dumps(facts) if arguments.json else "\n".join(lines(facts)))
    return 0


def describe(opened: OpenModel, config: EngineConfig) -> dict[str, Any]:
    """Return everything, ready for JSON. Raises `InvalidParameterError` for too small a budget."""
    checkpoint, spec = opened.checkpoint, opened.spec
    tensors = [checkpoint.tensor(name) for name in checkpoint.tensor_names()]
    budget = opened.budget(config)
    least = (1 + len(opened.groups)) * budget.page_bytes
    sizes = sorted({config.kv_cache_bytes, *(size for size in BUDGETS if size >= least)})
    return {
        "path": str(checkpoint.path),
        "format": checkpoint.format,
        "architecture": spec.architecture,
        "weights_digest": checkpoint.digest.hex(),
        "num_parameters": sum(prod(tensor.shape) for tensor in tensors),
        "tensor_types": dict(Counter(tensor.dtype for tensor in tensors)),
        "num_layers": spec.num_layers,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_heads": spec.num_heads,
        "num_kv_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "max_context": spec.max_context,
        "groups": [
            {"kind": group.kind, "window": group.window, "layers": list(group.layers)}
            for group in opened.groups
        ],
        "kv_cache_dtype": config.kv_cache_dtype,
        "block_size": config.block_size,
        "bytes_per_token": budget.bytes_per_token,
        "bytes_per_token_beyond_windows": budget.bytes_per_token_beyond_windows,
        "bytes_per_block": budget.page_bytes,
        "budgets": [_holds(opened, replace(config, kv_cache_bytes=size)) for size in sizes],
        "ops": make_ops(config).name,
    }


def _holds(opened: OpenModel, config: EngineConfig) -> dict[str, int]:
    budget = opened.budget(config)
    return {
        "kv_cache_bytes": config.kv_cache_bytes,
        "num_blocks": budget.num_usable_blocks,
        "num_tokens": budget.num_tokens,
        "longest_request": budget.max_tokens(opened.spec.max_context, config.max_num_batched_tokens),
    }


def lines(facts: dict[str, Any]) -> list[str]:
    """Return the same for people."""
    types = ", ".join(f"{count} {name}" for name, count in facts["tensor_types"].items())
    shown = {
        "file": f"{facts['path']} ({facts['format']})",
        "model": f"{facts['architecture']}, {facts['num_parameters']:,} parameters in tensors of {types}",
        "shape": "{num_layers} layers, hidden {hidden_size}, feed-forward {intermediate_size}, "
        "{num_heads} heads of {head_dim} over {num_kv_heads} KV heads".format(**facts),
        "vocabulary": f"{facts['vocab_size']:,} tokens",
        "context": f"{facts['max_context']:,} tokens",
        "ops": facts["ops"],
        "KV": f"{facts['kv_cache_dtype']}, {_per_token(facts)}; "
        f"a block of {facts['block_size']} takes {format_bytes(facts['bytes_per_block'])} in each group",
    }
    for number, group in enumerate(facts["groups"]):
        window = "everything" if group["window"] is None else f"a window of {group['window']} tokens"
        shown[f"group {number}"] = f"{len(group['layers'])} layers that see {window}"
    return [
        *(f"{name:<12}{text}" for name, text in shown.items()),
        "",
        f"{'--kv-cache-bytes':>16}{'blocks':>13}{'tokens':>13}{'longest request':>17}",
        *(
            f"{format_bytes(row['kv_cache_bytes']):>16}{row['num_blocks']:>13,}{row['num_tokens']:>13,}"
            f"{row['longest_request']:>17,}"
            for row in facts["budgets"]
        ),
    ]


def _per_token(facts: dict[str, Any]) -> str:
    first, later = (
        format_bytes(facts[name]) for name in ("bytes_per_token", "bytes_per_token_beyond_windows")
    )
    return f"{first} per token" if first == later else f"{first} per token, {later} beyond the windows"
