"""The vocabulary in a GGUF file, rewritten as a `tokenizer.json` of the `tokenizers` library.

GGUF lists the tokens, their kinds, and either merges (byte-level BPE, which it calls `gpt2`) or scores
(SentencePiece BPE, which it calls `llama`). The library knows merges only, best first; so scores become
merges: every way to make a token of two others, in the order of the scores.

Control tokens become special tokens: text yields them only where that is asked for. User-defined tokens
become added tokens: they are found in any text, before merging.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from ratoon.checkpoint.pre_tokenizers import PRE_TOKENIZERS
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # kinds of tokens
_SPACE = "\u2581"  # how SentencePiece writes a space

Json = dict[str, Any]
T = TypeVar("T")


def translate_tokenizer(metadata: Mapping[str, object], file: str) -> str:
    """Return the text of `tokenizer.json`. `metadata` includes the token lists; `file` is for errors.

    Raises `UnsupportedModelError` where there is no tokenizer or an unknown kind of one,
    `CorruptCheckpointError` where the lists do not fit each other.
    """
    return json.dumps(_Translation(metadata, file).document(), ensure_ascii=False, separators=(",", ":"))


class _Translation:
    """One file's vocabulary on its way."""

    def __init__(self, metadata: Mapping[str, object], file: str) -> None:
        self._metadata = metadata
        self._file = file
        self._tokens = self._list("tokens", str)
        self._kinds = self._list("token_type", int) or [_NORMAL] * len(self._tokens)
        self._ids = {token: number for number, token in enumerate(self._tokens)}
        if not self._tokens:
            raise UnsupportedModelError(f"{file} has no tokenizer.")
        if len(self._ids) != len(self._tokens):
            raise CorruptCheckpointError(f"{file} has one token under two ids.")
        if len(self._kinds) != len(self._tokens):
            raise CorruptCheckpointError(
                f"{file} has {len(self._tokens)} tokens, but kinds of {len(self._kinds)}."
            )

    def document(self) -> Json:
        model = self._key("model", None)
        if model == "gpt2":
            parts = self._byte_level()
        elif model == "llama":
            parts = self._sentencepiece()
        else:
            raise UnsupportedModelError(
                f"{self._file} has a tokenizer of the kind {model!r}, not gpt2 or llama."
            )
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self._added_tokens(),
        } | parts

    def _byte_level(self) -> Json:
        name = self._key("pre", "default")
        cut = PRE_TOKENIZERS.get(str(name))
        if cut is None:
            raise UnsupportedModelError(
                f"{self._file} cuts words in a way called {name!r}, which is not known here."
            )
        splits = [_split(pattern) for pattern in cut.patterns]
        to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
        return {
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, to_bytes]},
            "post_processor": self._frame(adds_bos=cut.adds_bos),
            "decoder": to_bytes,
            "model": self._bpe(self._list("merges", str), ignore_merges=cut.whole_words),
        }

    def _sentencepiece(self) -> Json:
        leading_space = bool(self._key("add_space_prefix", True))
        prepend = [{"type": "Prepend", "prepend": _SPACE}] if leading_space else []
        strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if leading_space else []
        return {
            "normalizer": {"type": "Sequence", "normalizers": [*prepend, _replace(" ", _SPACE)]},
            "pre_tokenizer": None,
            "post_processor": self._frame(adds_bos=True),
            "decoder": {
                "type": "Sequence",
                "decoders": [_replace(_SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}, *strip],
            },
            "model": self._bpe(
                self._merges_of_scores(),
                unk_token=self._tokens[self._token_id("unknown", 0)],
                fuse_unk=True,
                byte_fallback=True,
            ),
        }

    def _bpe(self, merges: list[str], **switches: object) -> Json:
        return {"type": "BPE", "vocab": self._ids, "merges": merges} | switches

    def _merges_of_scores(self) -> list[str]:
        """Return the merges, those of the highest score first and those of one token in a fixed order."""
        scores = self._list("scores", float)
        if len(scores) != len(self._tokens):
            raise CorruptCheckpointError(
                f"{self._file} has {len(self._tokens)} tokens, but {len(scores)} scores."
            )
        # Control and byte tokens are never made of pieces; neither may text grow into one.
        pieces = {
            token: number
            for token, number in self._ids.items()
            if self._kinds[number] in (_NORMAL, _UNUSED, _USER_DEFINED) and " " not in token
        }
        best_first = sorted(pieces.items(), key=lambda piece: -scores[piece[1]])
        return [
            f"{token[:cut]} {token[cut:]}"
            for token, _ in best_first
            for cut in range(1, len(token))
            if token[:cut] in pieces and token[cut:] in pieces
        ]

    def _added_tokens(self) -> list[Json]:
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        return [
            {"id": number, "content": token, "special": kind != _USER_DEFINED} | plain
            for number, (token, kind) in enumerate(zip(self._tokens, self._kinds, strict=True))
            if kind in (_CONTROL, _UNKNOWN, _USER_DEFINED)
        ]

    def _frame(self, *, adds_bos: bool) -> Json | None:
        """Return what puts the begin and end tokens around a text, where the file asks for it."""
        bos = [self._token_id("bos", 1)] if self._key("add_bos_token", adds_bos) else []
        eos = [self._token_id("eos", 2)] if self._key("add_eos_token", False) else []
        if not bos and not eos:
            return None
        text = {"Sequence": {"id": "A", "type_id": 0}}
        around = {
            number: {"SpecialToken": {"id": self._tokens[number], "type_id": 0}} for number in bos + eos
        }
        single = [*(around[number] for number in bos), text, *(around[number] for number in eos)]
        return {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                self._tokens[number]: {
                    "id": self._tokens[number],
                    "ids": [number],
                    "tokens": [self._tokens[number]],
                }
                for number in around
            },
        }

    def _key(self, name: str, default: object) -> object:
        return self._metadata.get(f"tokenizer.ggml.{name}", default)

    def _token_id(self, role: str, default: int) -> int:
        number = self._key(f"{role}_token_id", default)
        if not isinstance(number, int) or not 0 <= number < len(self._tokens):
            raise CorruptCheckpointError(
                f"{self._file} names token {number!r} as {role}, which does not exist."
            )
        return number

    def _list(self, name: str, kind: type[T]) -> list[T]:
        values = self._key(name, [])
        if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
            raise CorruptCheckpointError(
                f"{self._file} has no list of {kind.__name__} as tokenizer.ggml.{name}."
            )
        return values


def _split(pattern: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _replace(old: str, new: str) -> Json:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}
