"""`Checkpoint`: what every model file format offers.

Opening reads headers only; tensors are views into the mapped file. This room knows names, shapes, raw
bytes and digests, and nothing of what the model computes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Protocol

from ratoon.checkpoint.tensor import RawTensor


class Checkpoint(Protocol):
    """An open model file or folder."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    @property
    def format(self) -> Literal["gguf", "safetensors"]:
        """Which vocabulary `metadata` and tensor names use: GGUF's or Hugging Face's."""
        ...

    @property
    def architecture(self) -> str:
        """GGUF's name of the architecture (`llama`, `qwen2`, `qwen3`, `gemma3`, ...), for both formats."""
        ...

    @property
    def metadata(self) -> Mapping[str, object]:
        """GGUF key-values without token lists, or `config.json` with its fellows under their file names."""
        ...

    @property
    def tokenizer_json(self) -> str:
        """The tokenizer in the format of the `tokenizers` library, translated from GGUF where necessary."""
        ...

    @property
    def digest(self) -> bytes:
        """SHA-256 over the weights' bytes, cached beside the file (or in the user's cache folder)."""
        ...

    def tensor_names(self) -> tuple[str, ...]:
        """Names in file order."""
        ...

    def tensor(self, name: str) -> RawTensor:
        """Return one tensor. Raises `CorruptCheckpointError` where it is missing."""
        ...
