"""Which format a model has, and opening it."""

import os
from pathlib import Path

from ratoon.checkpoint.checkpoint import Checkpoint
from ratoon.checkpoint.gguf_file import GgufFile
from ratoon.checkpoint.safetensors_folder import SafetensorsFolder
from ratoon.errors import CheckpointError, MissingCheckpointError
from ratoon.util.progress import Progress, no_progress


def open_checkpoint(path: Path, progress: Progress = no_progress) -> Checkpoint:
    """Open a GGUF file or a folder in Hugging Face's layout.

    `progress` is told about when the digest is first asked for, which reads every byte of the weights.
    Raises `CheckpointError` of some kind.
    """
    path = model_at(path)
    return SafetensorsFolder(path, progress) if path.is_dir() else GgufFile(path, progress)


def model_at(path: Path) -> Path:
    """Return what a path stands for: itself, or the one GGUF file in it. Raises `CheckpointError`."""
    if not os.path.exists(path):  # unlike Path.exists, says no where it may not look
        raise MissingCheckpointError(f"There is no file or folder {path}.")
    if path.suffix == ".safetensors" and path.is_file():
        raise CheckpointError(
            f"{path} lacks its configuration and tokenizer.", hint=f"Give the folder instead: {path.parent}"
        )
    if path.is_file() or any(path.glob("*.safetensors")):
        return path
    files = sorted(path.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    if files:
        names = ", ".join(file.name for file in files)
        raise CheckpointError(f"{path} holds several models.", hint=f"Give one of the files in it: {names}")
    raise MissingCheckpointError(f"{path} holds neither a GGUF file nor safetensors.")
