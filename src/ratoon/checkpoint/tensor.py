"""`RawTensor`: one tensor as it lies in a model file."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawTensor:
    """Bytes of a tensor, not copied and not interpreted.

    `shape` is row-major with the contiguous axis last, so a linear layer is `(out_features,
    in_features)`. `dtype` is the GGUF name of the storage: `F32`, `F16`, `BF16`, `Q8_0`, `Q4_0`,
    `Q4_1`, ... Each row is a whole number of quantisation blocks. `data` is a read-only view of the
    mapped file; it stays valid while the checkpoint is open.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    data: memoryview
