"""`ExtraKeys`: what a request adds to its tokens, so that equal tokens with unequal K and V share no block.

Each block's extras are encoded from what touches that block, relative to its start:

- the digest of the adapter's content, on every block;
- the salt, on block 0 only; as hashes are chained, it separates everything after it too;
- each media item that overlaps the block.

Rows of prompt embeddings are a media item like an image's: positions at which the model is given rows of its
own, whose digest stands for what the tokens there do not say.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ratoon.errors import InvalidParameterError
from ratoon.identity.digest import Encodable, encode


@dataclass(frozen=True, slots=True)
class MediaItem:
    """Positions `offset` to `end` have input rows of their own; `content` digests all that decides them."""

    content: bytes
    offset: int
    length: int

    @property
    def end(self) -> int:
        """The first position after it."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True)
class ExtraKeys:
    """The extra keys of one request, validated when made; raises `InvalidParameterError`.

    Media items come in order of position and do not overlap one another.
    """

    adapter: bytes | None = None
    salt: str | None = None
    media: tuple[MediaItem, ...] = ()

    def __post_init__(self) -> None:
        if self.adapter == b"":
            raise InvalidParameterError("The adapter's digest is empty.")
        if self.salt == "":
            raise InvalidParameterError("The salt is empty.", hint="Leave it out to share with everyone.")
        _check_order(self.media)

    @property
    def uniform_from(self) -> int:
        """The position from which on all blocks have the same extras: only the adapter is left."""
        return self.media[-1].end if self.media else 0 if self.salt is None else 1

    def media_between(self, start: int, stop: int) -> range:
        """Return which of the media items have a position from `start` to `stop`."""
        first = bisect_right(self.media, start, key=lambda item: item.end)
        return range(first, max(first, bisect_left(self.media, stop, key=lambda item: item.offset)))

    def encode_block(self, start: int, stop: int) -> bytes:
        """Return the canonical extras of the block that holds positions `start` to `stop`.

        A media item is (content, item start, item end). Both count from the block's start, and the end is the
        block's own where the item goes on: what comes after a block changes nothing in it.
        """
        entries: list[Encodable] = []
        if self.adapter is not None:
            entries.append(("adapter", self.adapter))
        if self.salt is not None and start == 0:
            entries.append(("salt", self.salt))
        for number in self.media_between(start, stop):
            item = self.media[number]
            entries.append(("media", item.content, item.offset - start, min(item.end, stop) - start))
        return encode(tuple(entries))


def _check_order(media: Sequence[MediaItem]) -> None:
    for item in media:
        if not item.content:
            raise InvalidParameterError("A media item has an empty digest.")
        if item.offset < 0 or item.length < 1:
            raise InvalidParameterError(
                f"A media item has offset {item.offset} and length {item.length}.",
                hint="Offsets count from 0 and lengths from 1.",
            )
    for before, after in pairwise(media):
        if after.offset < before.end:
            raise InvalidParameterError(
                f"The media item at {after.offset} starts before the one at {before.offset} ends.",
                hint="Give them in order of position, without overlap.",
            )


NO_EXTRAS = ExtraKeys()
