"""The digest of a model's weights."""

import hashlib
from collections.abc import Iterable

from ratoon.checkpoint.tensor import RawTensor
from ratoon.util.progress import Progress

_CHUNK_BYTES = 1 << 24


def weights_digest(tensors: Iterable[RawTensor], progress: Progress) -> bytes:
    """Return SHA-256 over every tensor's name, storage, shape and bytes, in the order of their names.

    So it does not depend on where in which file a tensor lies, nor on anything that is not a weight.
    """
    in_order = sorted(tensors, key=lambda tensor: tensor.name)
    total = sum(tensor.num_bytes for tensor in in_order)
    digest = hashlib.sha256()
    done = 0
    for tensor in in_order:
        label = f"{tensor.name}\n{tensor.dtype}\n{tensor.shape}\n".encode()
        digest.update(len(label).to_bytes(8, "little") + label)
        for chunk in tensor.chunks(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress("reading the weights once", done, total)
    return digest.digest()
