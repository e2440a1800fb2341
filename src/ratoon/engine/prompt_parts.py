"""Prompts of several parts: text, token ids, and rows of input embeddings, in any order.

`PromptParts` and `Media` are what callers give, `PromptTokens` is what becomes of every prompt: one token id
per position, and the input rows that stand for some of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from ratoon.errors import InvalidParameterError
from ratoon.identity.extra_keys import MediaItem
from ratoon.request.input_rows import InputRows, input_rows
from ratoon.text.tokenizer import Tokenizer

PLACEHOLDER = 0
"""The token id at positions that have an input row instead; the row's digest parts them from all others."""

DTYPES = {"f": "F32", "<f": "F32", "e": "F16", "<e": "F16"}
"""Storages of rows by the formats of Python's buffers (`struct`)."""


@dataclass(frozen=True, slots=True)
class Media:
    """Input rows that an encoder has made of an image, a sound or the like.

    `content` is a digest of all that decides them: the file, the encoder, its settings. Equal media must have
    equal rows. `rows` is as in `PromptParts`.
    """

    content: bytes
    rows: Any


class PromptParts:
    """One prompt in parts, one after the other.

    A part is a text, token ids, `Media`, or rows of input embeddings: an array [n, hidden size] of float32 or
    float16 (NumPy's, or anything with the buffer protocol) with a row for each position. Rows are what the
    first layer reads, so those of a family that scales its token table are given scaled. A text that comes
    first begins as the model expects texts to begin; later ones go on.
    """

    __slots__ = ("parts",)

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt as the engine takes it, with its text if it was given as one.

    `rows` has the input rows in order, each with the position of the first.
    """

    ids: Sequence[int]
    text: str | None = None
    rows: tuple[tuple[int, InputRows], ...] = ()

    @property
    def media(self) -> tuple[MediaItem, ...]:
        """The rows as they enter the keys of blocks."""
        return tuple(MediaItem(rows.content, offset, rows.num_rows) for offset, rows in self.rows)

    @property
    def input_rows(self) -> tuple[InputRows, ...]:
        """The rows without their positions."""
        return tuple(rows for _, rows in self.rows)


def join_parts(parts: Sequence[str | Sequence[int] | InputRows], tokenizer: Tokenizer) -> PromptTokens:
    """Lay the parts of a prompt end to end. Raises `TextError` for text that cannot be encoded."""
    ids: list[int] = []
    rows: list[tuple[int, InputRows]] = []
    for number, part in enumerate(parts):
        if isinstance(part, InputRows):
            rows.append((len(ids), part))
            ids += [PLACEHOLDER] * part.num_rows
        elif isinstance(part, str):
            ids += tokenizer.encode(part, add_special=number == 0, parse_special=True)
        else:
            ids += part
    text = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else None
    return PromptTokens(ids, text, tuple(rows))


def read_part(part: object, width: int) -> str | Sequence[int] | InputRows:
    """Check one of `PromptParts` for a model that reads `width` numbers per position.

    Raises `InvalidParameterError`.
    """
    if isinstance(part, Media):
        if not isinstance(part.content, bytes) or not part.content:
            raise InvalidParameterError(f"The content of Media must be bytes, not {part.content!r}.")
        return _rows(part.rows, width, part.content)
    if isinstance(part, str):
        return part
    if isinstance(part, Sequence) and not isinstance(part, bytes | bytearray | memoryview):
        if not are_whole_numbers(part):
            raise InvalidParameterError("Token ids in a part of a prompt must be whole numbers.")
        return part
    return _rows(part, width)


def are_whole_numbers(items: Iterable[object]) -> bool:
    """Whether token ids could be among these; asks once for each type, since prompts are long."""
    return all(issubclass(kind, Integral) for kind in set(map(type, items)))


def _rows(array: object, width: int, content: bytes | None = None) -> InputRows:
    try:
        view = memoryview(array)  # type: ignore[arg-type]  # what has no buffer raises
    except (TypeError, ValueError):
        raise InvalidParameterError(
            f"A part of a prompt is a text, token ids, Media or rows, not a {type(array).__name__}."
        ) from None
    dtype = DTYPES.get(view.format, f"`{view.format}`")
    return input_rows(dtype, view.shape or (), view, width=width, content=content)
