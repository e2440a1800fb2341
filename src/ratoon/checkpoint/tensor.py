"""`RawTensor`: one tensor as it lies in a model file."""

import mmap
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

    def drop_pages(self) -> None:
        """Let go of the memory through which the file was read; who reads on finds everything again.

        Until then what was read counts as the process's own memory, although it is the file's.
        """
        if isinstance(self.data.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.data.obj.madvise(mmap.MADV_DONTNEED)
