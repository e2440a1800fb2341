"""`Tokenizer`: text to token ids and back, through the `tokenizers` library.

Nothing here changes after it is made, so threads may share a tokenizer.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import tokenizers

from ratoon.errors import TextError
from ratoon.text.control_text import ControlText
from ratoon.text.token_bytes import TokenBytes


class Tokenizer:
    """A vocabulary and its rules, as in a `tokenizer.json`. Raises `TextError` where that cannot be read.

    `bos` begins a text and each of `ends` ends an answer. Both are given as ids, or as names of control
    tokens; what names no token is passed over.
    """

    def __init__(self, tokenizer_json: str, *, bos: object = None, ends: Iterable[object] = ()) -> None:
        try:
            whole = tokenizers.Tokenizer.from_str(tokenizer_json)
        except Exception as error:  # the library raises nothing more precise
            raise TextError(f"The tokenizer cannot be read: {error}.") from error
        whole.no_truncation()
        whole.no_padding()
        added = whole.get_added_tokens_decoder()
        self._whole = whole
        self._plain = _without_control_tokens(whole)
        self._bytes = TokenBytes(_state_of(whole.decoder), {number: t.content for number, t in added.items()})
        self._control = {number: token.content for number, token in added.items() if token.special}
        self.control_ids = {name: number for number, name in self._control.items()}
        self.control_text = ControlText(self.control_ids)
        self.bos_token_id = next(self._resolve([bos]), None)
        self.eos_token_ids = tuple(dict.fromkeys(self._resolve(ends)))

    @property
    def vocab_size(self) -> int:
        """How many tokens there are; the model's own table may be longer."""
        return self._whole.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the ids of a text.

        `add_special` puts the tokens around it with which the model expects a text to begin and end.
        `parse_special` makes control tokens of text that reads like them; else it stays text.
        Raises `TextError` for a lone surrogate, which is half a character.
        """
        tokenizer = self._whole if parse_special else self._plain
        try:
            return tokenizer.encode(text, add_special_tokens=add_special).ids
        except TypeError:
            raise TextError("The text has half a character in it (a lone surrogate).") from None

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of a whole sequence; bytes that are no UTF-8 become U+FFFD."""
        spelled = b"".join(self.token_bytes(number, skip_special=skip_special) for number in token_ids)
        text = spelled.decode("utf-8", "replace")
        return text.removeprefix(" ") if self._bytes.begins_with_space else text

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        """Return what a token adds to the text: nothing if it is a skipped control token or has no name."""
        if skip_special and token_id in self._control:
            return b""
        return self._bytes.of(token_id, self._whole.id_to_token(token_id))

    def token_text(self, token_id: int) -> str:
        """Return a token by itself, control tokens by name."""
        return self.token_bytes(token_id, skip_special=False).decode("utf-8", "replace")

    def _resolve(self, tokens: Iterable[object]) -> Iterator[int]:
        for token in tokens:
            number = self.control_ids.get(token) if isinstance(token, str) else token
            if isinstance(number, int) and 0 <= number < self.vocab_size:
                yield number


def _without_control_tokens(whole: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """Return a tokenizer of the same parts, to which the names of control tokens are text."""
    plain = tokenizers.Tokenizer(whole.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        if getattr(whole, part) is not None:
            setattr(plain, part, getattr(whole, part))
    added = whole.get_added_tokens_decoder()
    plain.add_tokens([added[number] for number in sorted(added)])  # in this order they get the same ids again
    plain.encode_special_tokens = True
    if plain.get_added_tokens_decoder().keys() != added.keys():
        raise TextError("The tokenizer numbers its added tokens in a way that cannot be followed.")
    return plain


def _state_of(decoder: Any) -> dict[str, Any] | None:
    return None if decoder is None else json.loads(decoder.__getstate__())
