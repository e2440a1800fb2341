"""`Detokenizer`: text from tokens, as they come."""

import codecs
from collections.abc import Collection

from ratoon.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one sequence's tokens into text; each costs the same, however many came before.

    The pieces put together are the text of all tokens. A character comes whole, with the token that
    ends it. The sequence continues a prompt, so a space at its beginning is kept. With `skip_special` control
    tokens are left out, but those that are `shown`.
    """

    def __init__(
        self, tokenizer: Tokenizer, *, skip_special: bool = True, shown: Collection[int] = ()
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown = shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes, often all of its own, sometimes none."""
        skip_special = self._skip_special and token_id not in self._shown
        return self._decoder.decode(self._tokenizer.token_bytes(token_id, skip_special=skip_special))

    def flush(self) -> str:
        """Return what is left at the end: U+FFFD where the tokens ended within a character."""
        return self._decoder.decode(b"", final=True)
