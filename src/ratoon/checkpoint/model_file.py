"""`ModelFile`: a model's file, read at given places and never mapped.

A mapping would turn a file that is truncated in place into a signal that ends the process (SIGBUS), and one
that is overwritten into other weights. Reads cannot do either: every one of them checks that the file is
still the one that was opened, and raises where it is not. A file that is replaced by a rename stays what it
was for as long as it is open.
"""

import hashlib
import os
import stat
import weakref
from pathlib import Path

from ratoon.errors import CheckpointError, CorruptCheckpointError, MissingCheckpointError

_READ_BYTES = 1 << 30  # Linux reads a little less than 2 GiB at once
_SAMPLES = 64
_SAMPLE_BYTES = 1024


class ModelFile:
    """An open file of a fixed size; it is closed when the last reference goes.

    Raises `MissingCheckpointError`, `CorruptCheckpointError` for an empty file, `CheckpointError` for one
    that may not be read or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
        except FileNotFoundError:
            raise MissingCheckpointError(f"There is no file {path}.") from None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {getattr(error, 'strerror', error)}.") from error
        weakref.finalize(self, os.close, self._descriptor)
        self.path = path
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"{path} is not a regular file.")
        if not status.st_size:
            raise CorruptCheckpointError(f"{path} is empty.")
        self.size = status.st_size
        self._modified = status.st_mtime_ns

    def read(self, start: int, size: int) -> memoryview:
        """Return a copy of `size` bytes. Raises `CheckpointError` where the file has been changed."""
        self._check_unchanged()
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            end = min(size, filled + _READ_BYTES)
            if not (count := os.preadv(self._descriptor, [data[filled:end]], start + filled)):
                self._fail()
            filled += count
        self._check_unchanged()
        return data.toreadonly()

    def read_rows(self, start: int, row_bytes: int, rows: list[int]) -> bytes:
        """Return rows of a table at `start`, one after the other. Raises as `read` does."""
        data = b"".join([os.pread(self._descriptor, row_bytes, start + row * row_bytes) for row in rows])
        self._check_unchanged()
        if len(data) != row_bytes * len(rows):
            self._fail()
        return data

    def stamp(self) -> list[object]:
        """Return what tells this file from every other, for JSON; it takes no time that grows with the file.

        The time of the inode's last change is in it, which no program can set back, and so are a few bytes of
        the content, for a file system whose times are not to be trusted.
        """
        status = os.fstat(self._descriptor)
        last = max(0, self.size - _SAMPLE_BYTES)
        places = sorted({last * number // (_SAMPLES - 1) for number in range(_SAMPLES)})
        sample = hashlib.sha256()
        for place in places:
            sample.update(self.read(place, min(_SAMPLE_BYTES, self.size)))
        times = [status.st_mtime_ns, status.st_ctime_ns]
        return [self.path.name, self.size, status.st_ino, *times, sample.hexdigest()]

    def _check_unchanged(self) -> None:
        status = os.fstat(self._descriptor)
        if (status.st_size, status.st_mtime_ns) != (self.size, self._modified):
            self._fail()

    def _fail(self) -> None:
        raise CheckpointError(
            f"{self.path} was changed while it was in use.",
            hint="Start again. To exchange a model, write the new file elsewhere and rename it.",
        )


def read_text(path: Path) -> str:
    """Return a whole UTF-8 file; raises as `ModelFile` does."""
    file = ModelFile(path)
    try:
        return str(file.read(0, file.size), "utf-8")
    except UnicodeDecodeError:
        raise CorruptCheckpointError(f"{path} is not UTF-8.") from None
