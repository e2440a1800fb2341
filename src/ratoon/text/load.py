"""`load_tokenizer`: a checkpoint's tokenizer, with the tokens that begin a text and end an answer."""

from collections.abc import Mapping
from itertools import chain

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.text.tokenizer import Tokenizer

_ENDS = (
    "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>",
    "<end_of_turn>", "<eos>", "</s>", "<EOT>",
)  # fmt: skip
"""Control tokens that end an answer wherever they exist; files often name one of a model's several only."""


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Load it. Raises `CheckpointError` where the model has none, `TextError` where it cannot be read."""
    roles = _gguf_roles if checkpoint.format == "gguf" else _config_roles
    bos, ends = roles(checkpoint.metadata)
    return Tokenizer(checkpoint.tokenizer_json, bos=bos, ends=[*ends, *_ENDS])


def _gguf_roles(metadata: Mapping[str, object]) -> tuple[object, list[object]]:
    bos, *ends = (metadata.get(f"tokenizer.ggml.{role}_token_id") for role in ("bos", "eos", "eot", "eom"))
    return bos, ends


def _config_roles(config: Mapping[str, object]) -> tuple[object, list[object]]:
    """Return what the configuration files say, the tokenizer's own first."""
    texts, generation = (config.get(name) for name in ("tokenizer_config.json", "generation_config.json"))
    texts = texts if isinstance(texts, Mapping) else {}
    generation = generation if isinstance(generation, Mapping) else {}
    listed = (
        ids if isinstance(ids, list) else [ids]
        for ids in (generation.get("eos_token_id"), config.get("eos_token_id"))
    )
    return _content(texts.get("bos_token")), [_content(texts.get("eos_token")), *chain(*listed)]


def _content(token: object) -> object:
    """Return the text of a token that may be written as a table with its flags."""
    return token.get("content") if isinstance(token, Mapping) else token
