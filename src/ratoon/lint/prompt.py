"""`Prompt`: a request as the pieces of text that a model reads, in the order in which it reads them."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import accumulate


class Role(StrEnum):
    """Whose text a piece is; `TEXT` is a prompt without roles."""

    TOOLS = "tools"
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    REASONING = "reasoning"
    TOOL_RESULT = "tool"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Piece:
    """One message, one part of a message, or one tool's definition."""

    role: Role
    text: str


@dataclass(frozen=True)
class Prompt:
    """Tools come first, then the system prompt, then the messages. `line` is where it stood in its file.

    Where `conversation` is given, it is compared with earlier prompts of the same conversation first.
    """

    pieces: tuple[Piece, ...]
    line: int = 0
    conversation: str | None = None

    @cached_property
    def text(self) -> str:
        """All pieces, each after its role."""
        return "".join(map(_written, self.pieces))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(len(_written(piece)) for piece in self.pieces))

    def piece_at(self, position: int) -> int:
        """Return the number of the piece in which a character of `text` lies, of the last one at its end."""
        return next((i for i, end in enumerate(self._ends) if position < end), len(self.pieces) - 1)


def _written(piece: Piece) -> str:
    return f"\x02{piece.role}\x03{piece.text}"
