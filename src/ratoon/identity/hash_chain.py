"""`HashChain`: the known tokens of one request and the hashes of its full blocks.

`h[i] = H(h[i-1], tokens of block i, extras of block i)` with `h[-1]` the root. A block is hashed once, when
its last token is appended, and the chain lives as long as its request, through preemption and resumption.
That a hash is known says nothing about KV: computing and committing are for others.
"""

import struct
import sys
from array import array
from collections.abc import Iterable

from ratoon.errors import InvalidParameterError
from ratoon.identity.digest import DIGEST_SIZE, digest_chain
from ratoon.identity.extra_keys import NO_EXTRAS, ExtraKeys

_TOKEN_CODE = "I"
_TOKEN_SIZE = 4
assert array(_TOKEN_CODE).itemsize == _TOKEN_SIZE, "token ids are hashed as 32-bit integers"


class HashChain:
    """Tokens, block hashes and token records of one request; only `append` changes them.

    `tokens` holds every known token id. `block_hashes[i]` and `block_tokens[i]` are the hash and the bytes
    (32-bit little-endian ids) of full block i. Read them freely, change nothing.
    """

    __slots__ = (
        "_count",
        "_uniform",
        "block_hashes",
        "block_size",
        "block_tokens",
        "extra_keys",
        "root",
        "tokens",
    )

    def __init__(
        self, root: bytes, block_size: int, extra_keys: ExtraKeys = NO_EXTRAS, tokens: Iterable[int] = ()
    ) -> None:
        assert len(root) == DIGEST_SIZE, "a root is a digest"
        assert block_size > 0, "a block holds tokens"
        self.root = root
        self.block_size = block_size
        self.extra_keys = extra_keys
        self.tokens = array(_TOKEN_CODE)
        self.block_hashes: list[bytes] = []
        self.block_tokens: list[bytes] = []
        self._count = struct.pack("<I", block_size)
        # What every block has in which nothing of its own begins or ends: the extras of an empty span.
        self._uniform = extra_keys.encode_block(extra_keys.uniform_from, extra_keys.uniform_from)
        self.append(tokens)

    def fork(self) -> "HashChain":
        """Return a chain of the same tokens that grows by itself; nothing is hashed again."""
        twin = HashChain(self.root, self.block_size, self.extra_keys)
        twin.tokens.extend(self.tokens)
        twin.block_hashes += self.block_hashes
        twin.block_tokens += self.block_tokens
        return twin

    @property
    def num_tokens(self) -> int:
        """Known tokens."""
        return len(self.tokens)

    def append(self, tokens: Iterable[int]) -> None:
        """Add known tokens and hash each block that they fill.

        Raises `InvalidParameterError` for anything but integers from 0 to 2**32 - 1; the chain is then
        unchanged.
        """
        try:
            new = array(_TOKEN_CODE, tokens)
        except (OverflowError, TypeError) as error:
            raise InvalidParameterError("A token id is not a whole number from 0 to 4294967295.") from error
        self.tokens.extend(new)
        if len(self.tokens) // self.block_size > len(self.block_hashes):
            self._hash_full_blocks()

    def _hash_full_blocks(self) -> None:
        size = self.block_size
        first = len(self.block_hashes)
        last = len(self.tokens) // size
        new = self.tokens[first * size : last * size]
        if sys.byteorder == "big":
            new.byteswap()
        data = new.tobytes()
        width = size * _TOKEN_SIZE
        count, hashes, extras = self._count, self.block_hashes, self.extra_keys

        # Blocks that something of their own belongs to; after them only the adapter is left.
        varied = min(max(first, -(-extras.uniform_from // size)), last)
        for block in range(first, varied):
            own = data[(block - first) * width : (block - first + 1) * width]
            suffix = extras.encode_block(block * size, (block + 1) * size)
            hashes += digest_chain(hashes[-1] if hashes else self.root, count, own, width, suffix)
        if varied < last:
            rest = data[(varied - first) * width :]
            hashes += digest_chain(hashes[-1] if hashes else self.root, count, rest, width, self._uniform)
        self.block_tokens += struct.unpack(f"{width}s" * (last - first), data)
