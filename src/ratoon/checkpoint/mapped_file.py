"""A file mapped into memory."""

import mmap
from pathlib import Path

from ratoon.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError


def map_file(path: Path) -> memoryview:
    """Return the file's bytes, read-only; the mapping lives as long as a view of it does.

    Raises `MissingCheckpointError`, `CorruptCheckpointError` for an empty file, `CheckpointError` for one
    that may not be read.
    """
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except FileNotFoundError:
        raise MissingCheckpointError(f"There is no file {path}.") from None
    except ValueError:
        raise CorruptCheckpointError(f"{path} is empty.") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error
