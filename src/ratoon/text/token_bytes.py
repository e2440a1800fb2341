"""`TokenBytes`: what one token adds to a text, as bytes.

A token may hold a part of a character, so text is put together from bytes. Two spellings exist:
byte-level BPE writes each byte as a printable character, SentencePiece writes a space as U+2581 and
single bytes as `<0x41>`.
"""

import re
from collections.abc import Mapping
from typing import Any

from ratoon.errors import TextError

_SPACE = "\u2581"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_alphabet() -> dict[int, int]:
    """Return GPT-2's alphabet: the code point that stands for a byte -> the byte.

    Bytes that are visible characters in Latin-1 stand for themselves, the others for U+0100 and after,
    in order.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: byte for byte in visible} | {0x100 + place: byte for place, byte in enumerate(hidden)}


_ALPHABET = _byte_alphabet()


class TokenBytes:
    """Spells tokens the way a `decoder` of `tokenizer.json` does. Raises `TextError` for an unknown decoder.

    `added` are the tokens that stand for their own text, by id.
    `begins_with_space` tells that a whole text was given a space in front, which is not part of it.
    """

    def __init__(self, decoder: Mapping[str, Any] | None, added: Mapping[int, str]) -> None:
        steps = _steps(decoder)
        kinds = {step["type"] for step in steps}
        unknown = kinds - {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
        if unknown or not kinds:
            raise TextError(f"The tokenizer decodes in an unknown way: {', '.join(unknown) or 'none'}.")
        self._added = added
        self._is_byte_level = "ByteLevel" in kinds
        self.begins_with_space = any(
            step["type"] == "Strip" or step.get("prepend_scheme", "never") != "never" for step in steps
        )

    def of(self, token_id: int, token: str | None) -> bytes:
        """Return the bytes of a token, given its name; none for one that the vocabulary lacks."""
        if token is None:
            return b""
        if token_id in self._added:
            return self._added[token_id].encode()
        if self._is_byte_level:
            return token.translate(_ALPHABET).encode("latin-1")
        if byte := _BYTE.fullmatch(token):
            return bytes.fromhex(byte[1])
        return token.replace(_SPACE, " ").encode()


def _steps(decoder: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if decoder is None:
        return []
    return decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
