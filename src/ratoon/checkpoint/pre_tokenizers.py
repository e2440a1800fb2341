r"""How byte-level BPE vocabularies cut text into words before merging, by the name GGUF gives it.

GGUF names a way of cutting (`tokenizer.ggml.pre`) and leaves its definition to the reader. The patterns
are those of the models' own `tokenizer.json`, applied one after the other, each to the pieces that the
one before left. A name that is not here is refused: a wrong cut gives wrong tokens without any other
sign.
"""

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _modern(digits: str) -> str:
    """Return the pattern that Llama 3 introduced; families differ in how many digits make a word."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`whole_words`: a word that is a token itself is taken as that token, whatever the merges say."""

    patterns: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False  # where the file does not say


_LLAMA3 = PreTokenizer((_modern(r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)
_QWEN2 = PreTokenizer((_modern(r"\p{N}"),))

PRE_TOKENIZERS = {
    # What llama.cpp assumes where a converter did not know better.
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True, adds_bos=True),
}
