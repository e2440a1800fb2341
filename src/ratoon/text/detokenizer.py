"""`Detokenizer`: text from tokens, as they come."""

import codecs

from ratoon.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns one sequence's tokens into text; each costs the same, however many came before.

    The pieces put together are the text of all tokens. A character comes whole, with the token that
    ends it. The sequence continues a prompt, so a space at its beginning is kept.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_id: int) -> str:
        """Return the text that this token completes, often all of its own, sometimes none."""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id, skip_special=self._skip_special))

    def flush(self) -> str:
        """Return what is left at the end: U+FFFD where the tokens ended within a character."""
        return self._decoder.decode(b"", final=True)
