"""`GgufFile`: a GGUF file as a `Checkpoint`.

Opening a file for the first time walks its header. When the digest is asked for, the weights are read
once, and all that was found out, with the tokenizer in translation, is kept in the sidecar. From then
on opening reads the sidecar and nothing else, and loads no library.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ratoon.checkpoint.digest import weights_digest
from ratoon.checkpoint.gguf_tokenizer import translate_tokenizer
from ratoon.checkpoint.model_file import ModelFile
from ratoon.checkpoint.sidecar import Sidecar, load_sidecar, save_sidecar
from ratoon.checkpoint.tensor import FileRange, RawTensor
from ratoon.errors import CheckpointError, CorruptCheckpointError
from ratoon.util.progress import Progress

if TYPE_CHECKING:
    from ratoon.checkpoint.gguf_header import GgufHeader


class GgufFile:
    """Implements `Checkpoint`. Raises `CheckpointError` where the file is not a whole GGUF file."""

    format: Literal["gguf"] = "gguf"

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self._progress = progress
        self._file = ModelFile(path)
        self._sidecar = load_sidecar(path, [self._file])
        self._facts = self._sidecar.facts if self._sidecar else _facts(self._header())
        self.metadata: Mapping[str, object] = self._facts["metadata"]
        self._tensors = {
            name: RawTensor(name, tuple(shape), dtype, FileRange(self._file, start, size))
            for name, shape, dtype, start, size in self._facts["tensors"]
        }

    @property
    def architecture(self) -> str:
        """As `general.architecture` says."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise CorruptCheckpointError(f"{self.path} does not say what architecture it is.")
        return name

    @cached_property
    def tokenizer_json(self) -> str:
        """Raises `UnsupportedModelError` where the file has no tokenizer, or one of an unknown kind."""
        kept = self._sidecar.tokenizer_json if self._sidecar else ""
        return kept or translate_tokenizer(self._header().metadata, str(self.path))

    @cached_property
    def digest(self) -> bytes:
        """Kept from the first time on."""
        if self._sidecar:
            return bytes.fromhex(self._facts["digest"])
        digest = weights_digest(self._tensors.values(), self._progress)
        try:
            tokenizer_json = self.tokenizer_json
        except CheckpointError:
            tokenizer_json = ""  # the error comes when text is wanted
        sidecar = Sidecar(self._facts | {"digest": digest.hex()}, tokenizer_json)
        save_sidecar(self.path, [self._file], sidecar)
        return digest

    def tensor_names(self) -> tuple[str, ...]:
        """Names in file order."""
        return tuple(self._tensors)

    def tensor(self, name: str) -> RawTensor:
        """Return one tensor. Raises `CorruptCheckpointError` where it is missing."""
        if name not in self._tensors:
            raise CorruptCheckpointError(f"{self.path} has no tensor {name!r}.")
        return self._tensors[name]

    def _header(self) -> "GgufHeader":
        # Imported here, because `gguf` takes longer to load than a sidecar.
        from ratoon.checkpoint.gguf_header import read_gguf_header

        return read_gguf_header(self._file)


def _facts(header: "GgufHeader") -> dict[str, Any]:
    """Return what a sidecar keeps of a header: all but the token lists."""
    return {
        "metadata": {
            key: value
            for key, value in header.metadata.items()
            if not (key.startswith("tokenizer.ggml.") and isinstance(value, list))
        },
        "tensors": [[t.name, t.shape, t.dtype, t.start, t.size] for t in header.tensors],
    }
