"""The hash function and the canonical byte encoding that every identity goes through.

A value is encoded as a type letter, a length and its bytes, so that no two different values have the same
encoding, and the same value has the same encoding in every process and on every machine. A change of
the encoding raises `KEY_VERSION`, which is part of every root.
"""

import struct
from hashlib import sha256

from ratoon.errors import InvalidParameterError

try:
    from ratoon.identity._sha256 import hash_blocks, is_available  # not there without a compiler

    _HASHES_BLOCKS = is_available()
except ImportError:
    _HASHES_BLOCKS = False

KEY_VERSION = 1
HASH_NAME = "sha256"
DIGEST_SIZE = 32

Encodable = None | bool | int | float | str | bytes | tuple["Encodable", ...]
"""What can be part of an identity. `True` and `1` are different values, and so are `1` and `1.0`."""


def digest(data: bytes) -> bytes:
    """Return the 32-byte SHA-256 of `data`; of hashlib's functions the quickest on blocks of 16 tokens."""
    return sha256(data).digest()


def digest_chain(parent: bytes, before: bytes, blocks: bytes, width: int, after: bytes) -> list[bytes]:
    """Return a digest per block of `width` bytes: of the digest before it, `before`, the block, `after`."""
    if _HASHES_BLOCKS:
        return hash_blocks(parent, before, blocks, width, after)
    digests = []
    for start in range(0, len(blocks), width):
        parent = digest(parent + before + blocks[start : start + width] + after)
        digests.append(parent)
    return digests


def encode(value: Encodable) -> bytes:
    """Return the canonical bytes of `value`. Lengths and counts are unsigned 32-bit little-endian.

    Raises `InvalidParameterError` for a value of another type.
    """
    match value:
        case tuple():
            return b"t" + struct.pack("<I", len(value)) + b"".join(map(encode, value))
        case None:
            return _field(b"n", b"")
        case bool():
            return _field(b"?", b"\x01" if value else b"\x00")
        case int():
            return _field(b"i", str(value).encode("ascii"))
        case float():
            return _field(b"f", struct.pack("<d", value))
        case str():
            return _field(b"s", value.encode("utf-8", "surrogatepass"))
        case bytes():
            return _field(b"b", value)
    raise InvalidParameterError(f"A {type(value).__name__} cannot be part of a block's identity.")


def _field(letter: bytes, payload: bytes) -> bytes:
    return letter + struct.pack("<I", len(payload)) + payload
