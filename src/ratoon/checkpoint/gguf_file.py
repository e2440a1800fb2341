"""`GgufFile`: a GGUF file as a `Checkpoint`.

The first time a file is opened its header is walked, its weights are digested and its tokenizer is
translated; all that is kept in the companion, so the next time nothing but the companion is read and no
library is loaded.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from ratoon.checkpoint.companion import Companion, load_companion, save_companion
from ratoon.checkpoint.digest import weights_digest
from ratoon.checkpoint.gguf_tokenizer import translate_tokenizer
from ratoon.checkpoint.mapped_file import map_file
from ratoon.checkpoint.tensor import RawTensor
from ratoon.errors import CorruptCheckpointError, UnsupportedModelError
from ratoon.util.progress import Progress


class GgufFile:
    """Implements `Checkpoint`. Raises `CheckpointError` where the file is not a whole GGUF file."""

    format: Literal["gguf"] = "gguf"

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self._data = map_file(path)
        companion = load_companion(path, [path])
        if companion is None:
            companion = self._read(progress)
            save_companion(path, [path], companion)
        facts: dict[str, Any] = companion.facts
        self.metadata: Mapping[str, object] = facts["metadata"]
        self.digest = bytes.fromhex(facts["digest"])
        self._tensors = _views(self._data, facts["tensors"])
        self._tokenizer_json = companion.tokenizer_json

    @property
    def architecture(self) -> str:
        """As `general.architecture` says."""
        name = self.metadata.get("general.architecture")
        if not isinstance(name, str):
            raise CorruptCheckpointError(f"{self.path} does not say what architecture it is.")
        return name

    @property
    def tokenizer_json(self) -> str:
        """Raises `UnsupportedModelError` where the file has no tokenizer, or one of an unknown kind."""
        return self._tokenizer_json or self._translate_tokenizer()

    def tensor_names(self) -> tuple[str, ...]:
        """Names in file order."""
        return tuple(self._tensors)

    def tensor(self, name: str) -> RawTensor:
        """Return one tensor. Raises `CorruptCheckpointError` where it is missing."""
        if name not in self._tensors:
            raise CorruptCheckpointError(f"{self.path} has no tensor {name!r}.")
        return self._tensors[name]

    def _read(self, progress: Progress) -> Companion:
        from ratoon.checkpoint.gguf_header import (
            read_gguf_header,
        )  # brings `gguf`, which takes a while to load

        header = read_gguf_header(self._data, str(self.path))
        tensors = [[t.name, t.shape, t.dtype, t.start, t.size] for t in header.tensors]
        digest = weights_digest(_views(self._data, tensors).values(), progress)
        metadata = {key: value for key, value in header.metadata.items() if not _is_token_list(key, value)}
        facts: dict[str, object] = {"digest": digest.hex(), "metadata": metadata, "tensors": tensors}
        try:
            return Companion(facts, translate_tokenizer(header.metadata, str(self.path)))
        except UnsupportedModelError:
            return Companion(facts)  # the model can still be looked at; the error comes when text is wanted

    def _translate_tokenizer(self) -> str:
        from ratoon.checkpoint.gguf_header import read_gguf_header

        return translate_tokenizer(read_gguf_header(self._data, str(self.path)).metadata, str(self.path))


def _views(data: memoryview, entries: list[Any]) -> dict[str, RawTensor]:
    return {
        name: RawTensor(name, tuple(shape), dtype, data[start : start + size])
        for name, shape, dtype, start, size in entries
    }


def _is_token_list(key: str, value: object) -> bool:
    return key.startswith("tokenizer.ggml.") and isinstance(value, list)
