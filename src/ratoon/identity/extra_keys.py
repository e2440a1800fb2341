"""`ExtraKeys`: what a request adds to its tokens, so that equal tokens with unequal K and V share no block.

Each block's extras are encoded from what touches that block, relative to its start:

- the digest of the adapter's content, on every block;
- the salt, on block 0 only; as hashes are chained, it parts everything after it too;
- each media item and each span of prompt embeddings that overlaps the block.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ratoon.errors import InvalidParameterError
from ratoon.identity.digest import Encodable, encode


@dataclass(frozen=True, slots=True)
class MediaItem:
    """Positions `offset` to `offset + length` are placeholders for media whose digest is `content`."""

    content: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class EmbeddingSpan:
    """Positions `offset` to `offset + length` have given input rows; `content` digests type, shape, bytes."""

    content: bytes
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ExtraKeys:
    """The extra keys of one request, validated when made; raises `InvalidParameterError`.

    Media items come in order of position and do not overlap one another; the same holds for embedding spans.
    """

    adapter: bytes | None = None
    salt: str | None = None
    media: tuple[MediaItem, ...] = ()
    embeddings: tuple[EmbeddingSpan, ...] = ()

    def __post_init__(self) -> None:
        if self.adapter == b"":
            raise InvalidParameterError("The adapter's digest is empty.")
        if self.salt == "":
            raise InvalidParameterError("The salt is empty.", hint="Leave it out to share with everyone.")
        _check_order("media item", self.media)
        _check_order("embedding span", self.embeddings)

    @property
    def uniform_from(self) -> int:
        """The position from which on all blocks have the same extras: only the adapter is left."""
        ends = [items[-1].offset + items[-1].length for items in (self.media, self.embeddings) if items]
        return max(ends, default=0 if self.salt is None else 1)

    def encode_block(self, start: int, stop: int) -> bytes:
        """Return the canonical extras of the block that holds positions `start` to `stop`."""
        entries: list[Encodable] = []
        if self.adapter is not None:
            entries.append(("adapter", self.adapter))
        if self.salt is not None and start == 0:
            entries.append(("salt", self.salt))
        entries += _overlapping("media", self.media, start, stop)
        entries += _overlapping("embeddings", self.embeddings, start, stop)
        return encode(tuple(entries))


def _check_order(name: str, items: Sequence[MediaItem | EmbeddingSpan]) -> None:
    for item in items:
        if not item.content:
            raise InvalidParameterError(f"A {name} has an empty digest.")
        if item.offset < 0 or item.length < 1:
            raise InvalidParameterError(
                f"A {name} has offset {item.offset} and length {item.length}.",
                hint="Offsets count from 0 and lengths from 1.",
            )
    for before, after in pairwise(items):
        if after.offset < before.offset + before.length:
            raise InvalidParameterError(
                f"The {name} at {after.offset} starts before the one at {before.offset} ends.",
                hint="Give them in order of position, without overlap.",
            )


def _overlapping(
    label: str, items: Sequence[MediaItem | EmbeddingSpan], start: int, stop: int
) -> list[Encodable]:
    """Return (label, content, item start, item end) of each item with a position in the block.

    Both count from the block's start, and the end is the block's own where the item goes on: what comes
    after a block changes nothing in it.
    """
    first = bisect_right(items, start, key=lambda item: item.offset + item.length)
    touching: list[Encodable] = []
    for item in items[first:]:
        if item.offset >= stop:
            break
        end = min(item.offset + item.length, stop)
        touching.append((label, item.content, item.offset - start, end - start))
    return touching


NO_EXTRAS = ExtraKeys()
