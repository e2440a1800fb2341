"""`SafetensorsFolder`: a folder in Hugging Face's layout as a `Checkpoint`.

It holds `config.json`, `tokenizer.json` and one or more `*.safetensors`, with `tokenizer_config.json`,
`generation_config.json` and `chat_template.jinja` where the model has them. A `.safetensors` file is
the length of its header, the header as JSON (name -> dtype, shape, offsets), and the tensors' bytes.
Format: https://github.com/huggingface/safetensors#format
"""

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

from ratoon.checkpoint.digest import weights_digest
from ratoon.checkpoint.model_file import ModelFile, read_text
from ratoon.checkpoint.sidecar import Sidecar, load_sidecar, save_sidecar
from ratoon.checkpoint.tensor import FileRange, RawTensor
from ratoon.errors import CorruptCheckpointError, MissingCheckpointError, UnsupportedModelError
from ratoon.util.progress import Progress

_ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip
_ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3"}  # where GGUF's name is another one
_MAX_HEADER_BYTES = 32 << 20  # room for 200,000 tensors
_MAX_DIMENSIONS = 16
_TEXT_PART = "text_config"
_TEXT_PREFIXES = (("model.language_model.", "model."), ("language_model.", ""), ("lm_head.", "lm_head."))
_SIDE_FILES = ("tokenizer_config.json", "generation_config.json")


class SafetensorsFolder:
    """Implements `Checkpoint`. Raises `CheckpointError` of some kind where a file is missing or damaged."""

    format: Literal["safetensors"] = "safetensors"

    def __init__(self, path: Path, progress: Progress) -> None:
        self.path = path
        self._progress = progress
        self.metadata: Mapping[str, object] = _read_metadata(path)
        self._files = [ModelFile(file) for file in _weight_files(path)]
        self._tensors: dict[str, RawTensor] = {}
        for file in self._files:
            for tensor in _tensors_of(file):
                if (name := self._text_name(tensor.name)) is None:
                    continue
                if name in self._tensors:
                    raise CorruptCheckpointError(f"{path} has the tensor {name!r} twice.")
                self._tensors[name] = tensor

    def _text_name(self, name: str) -> str | None:
        """Return a tensor's name in a model of text alone; None for those of other parts."""
        if _TEXT_PART not in self.metadata:
            return name
        for prefix, instead in _TEXT_PREFIXES:
            if name.startswith(prefix):
                return instead + name.removeprefix(prefix)
        return None

    @property
    def architecture(self) -> str:
        """`model_type` of `config.json`, under GGUF's name for it."""
        name = self.metadata.get("model_type")
        if not isinstance(name, str):
            raise CorruptCheckpointError(f"{self.path / 'config.json'} does not say what model_type it is.")
        return _ARCHITECTURES.get(name, name)

    @property
    def tokenizer_json(self) -> str:
        """Raises `MissingCheckpointError` where the folder has none."""
        return read_text(self.path / "tokenizer.json")

    @cached_property
    def digest(self) -> bytes:
        """Kept from the first time on."""
        if sidecar := load_sidecar(self.path, self._files):
            return bytes.fromhex(sidecar.facts["digest"])
        digest = weights_digest(self._tensors.values(), self._progress)
        save_sidecar(self.path, self._files, Sidecar({"digest": digest.hex()}))
        return digest

    def tensor_names(self) -> tuple[str, ...]:
        """Names in file order."""
        return tuple(self._tensors)

    def tensor(self, name: str) -> RawTensor:
        """Return one tensor. Raises `CorruptCheckpointError` where it is missing."""
        if name not in self._tensors:
            raise CorruptCheckpointError(f"{self.path} has no tensor {name!r}.")
        return self._tensors[name]


def _weight_files(path: Path) -> list[Path]:
    """Return the files that hold the weights; repositories may hold other copies of them too."""
    index = path / "model.safetensors.index.json"
    if index.exists():
        shards = _read_json(index).get("weight_map")
        if not isinstance(shards, dict):
            raise CorruptCheckpointError(f"{index} has no weight_map.")
        return [path / name for name in sorted({str(shard) for shard in shards.values()})]
    whole = path / "model.safetensors"
    files = [whole] if whole.exists() else sorted(path.glob("*.safetensors"))
    if not files:
        raise MissingCheckpointError(f"{path} holds no safetensors.")
    return files


def _read_metadata(path: Path) -> dict[str, object]:
    """Return `config.json`, with the other configuration files under their own names."""
    metadata = _read_json(path / "config.json")
    if isinstance(text_part := metadata.get(_TEXT_PART), dict):
        metadata |= text_part  # of a model that also takes images: they are left out
    for name in _SIDE_FILES:
        if (path / name).exists():
            metadata[name] = _read_json(path / name)
    if (path / "chat_template.jinja").exists():
        metadata["chat_template.jinja"] = read_text(path / "chat_template.jinja")
    return metadata


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(read_text(path))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CorruptCheckpointError(f"{path} is not a JSON object.")
    return document


def read_tensors(data: memoryview, file: object) -> Iterator[RawTensor]:
    """Read the tensors of a file that is in memory, which errors call `file`.

    Raises `CheckpointError` of some kind for what is not such a file, before any tensor is touched.
    """
    header = data[8 : 8 + _header_bytes(data[:8], len(data), file)]
    for name, shape, dtype, start, size in _tensor_table(header, len(data), file):
        yield RawTensor(name, shape, dtype, data[start : start + size])


def _tensors_of(file: ModelFile) -> Iterator[RawTensor]:
    """Read the header of a file, and nothing else of it."""
    size = _header_bytes(file.read(0, min(8, file.size)), file.size, file.path)
    for name, shape, dtype, start, length in _tensor_table(file.read(8, size), file.size, file.path):
        yield RawTensor(name, shape, dtype, FileRange(file, start, length))


def _header_bytes(first: memoryview, file_size: int, file: object) -> int:
    """Return how long the header is, which the first 8 bytes tell."""
    size = int.from_bytes(first, "little")
    if len(first) < 8 or 8 + size > file_size:
        _fail(file, "ends inside its header; it may be truncated")
    if size > _MAX_HEADER_BYTES:
        _fail(file, f"has a header of {size} bytes")
    return size


def _tensor_table(
    header: memoryview, file_size: int, file: object
) -> Iterator[tuple[str, tuple[int, ...], str, int, int]]:
    """Check each entry; return name, shape, storage, and where in the file how many bytes lie."""
    try:
        fields = json.loads(bytes(header))
        fields.pop("__metadata__", None)
        entries = [_entry(name, **entry) for name, entry in fields.items()]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        _fail(file, "has a damaged header")
    start = 8 + len(header)
    for name, dtype, shape, begin, end in entries:
        if dtype not in _ITEM_BYTES:
            raise UnsupportedModelError(f"{file} stores its tensor {name!r} in the unknown type {dtype}.")
        if begin < 0 or min(shape, default=1) < 1 or end - begin != math.prod(shape) * _ITEM_BYTES[dtype]:
            _fail(file, f"gives its tensor {name!r} a size that does not fit its shape")
        if start + end > file_size:
            _fail(file, f"places its tensor {name!r} where the file has ended; it may be truncated")
        yield name, shape, dtype, start + begin, end - begin


def _entry(
    name: str, dtype: str, shape: list[int], data_offsets: list[int]
) -> tuple[str, str, tuple[int, ...], int, int]:
    begin, end = data_offsets
    if not all(type(number) is int for number in (begin, end, *shape)) or len(shape) > _MAX_DIMENSIONS:
        raise ValueError
    return name, str(dtype), tuple(shape), begin, end


def _fail(file: object, what: str) -> NoReturn:
    raise CorruptCheckpointError(f"{file} {what}.", hint="Fetch the file again.")
