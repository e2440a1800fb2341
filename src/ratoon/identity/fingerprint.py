"""`ModelFingerprint`: everything about model and server that changes K and V for the same tokens."""

from dataclasses import dataclass, fields

from ratoon.identity.digest import HASH_NAME, KEY_VERSION, Encodable, digest, encode


@dataclass(frozen=True, slots=True)
class ModelFingerprint:
    """What a KV block depends on besides the request.

    Two processes with equal fingerprints may exchange blocks; under unequal ones no block ever matches.
    `attention` and `rope` are whatever values describe those settings completely (for instance dataclasses
    turned into tuples). `kv_layout` names how a block's bytes are arranged. `kernels_version` changes
    whenever a kernel's numeric result does. `weight_epoch` is for code that changes weights in
    memory, where a new digest would take too long; nothing here does yet, so it is 0.
    """

    weights_digest: bytes
    attention: Encodable
    rope: Encodable
    kv_dtype: str
    kv_layout: str
    block_size: int
    kernels_version: str
    weight_epoch: int = 0

    def root(self) -> bytes:
        """Return the digest that the first block of every chain is hashed onto."""
        settings = tuple((field.name, getattr(self, field.name)) for field in fields(self))
        return digest(encode(("ratoon root", KEY_VERSION, HASH_NAME, settings)))
