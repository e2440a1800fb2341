"""Models from Hugging Face, through `huggingface_hub`, which comes with `tokenizers`."""

import errno
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from ratoon.checkpoint.folder_watch import watched
from ratoon.errors import PullError
from ratoon.util.progress import Progress

_QUANTISATIONS = (
    *("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q5_1", "Q5_0", "Q4_K_S", "Q4_1", "Q4_0"),
    *("BF16", "F16", "F32"),
)
"""Those that run, the best first: small and nearly lossless."""

_FOLDER_FILES = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|chat_template\.jinja"
    r"|model.*\.safetensors|model\.safetensors\.index\.json"
)


def is_repo_id(name: str) -> bool:
    """Whether a name has the form `owner/name`."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII) is not None


def choose_files(sizes: Mapping[str, int]) -> list[str]:
    """Return what to fetch of a repo: one GGUF that runs, else the safetensors folder, else nothing."""
    for quantisation in _QUANTISATIONS:
        pattern = re.compile(rf"(?!mmproj)[^/]*[-._]{quantisation}\.gguf", re.IGNORECASE)
        if fitting := [name for name in sizes if pattern.fullmatch(name)]:
            return [min(fitting, key=lambda name: (sizes[name], name))]
    chosen = [name for name in sizes if _FOLDER_FILES.fullmatch(name)]
    return chosen if {"config.json", "tokenizer.json"} <= set(chosen) else []


def fetch_repo(repo_id: str, folder: Path, progress: Progress) -> None:
    """Put a repo's model into the folder. Raises `PullError`, or `OSError` where the disk is full."""
    try:
        _fetch(repo_id, folder, progress)
    except Exception as error:  # what a failing network raises depends on the HTTP library of the day
        if isinstance(error, PullError) or getattr(error, "errno", None) == errno.ENOSPC:
            raise
        raise _explained(repo_id, error) from error


def _fetch(repo_id: str, folder: Path, progress: Progress) -> None:
    import huggingface_hub  # a slow import that nothing else needs
    from huggingface_hub.utils.tqdm import disable_progress_bars

    found = huggingface_hub.HfApi().model_info(repo_id, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in found.siblings or []}
    chosen = choose_files(sizes)
    if not chosen:
        raise PullError(
            f"{repo_id} has no model that runs here.",
            hint=f"GGUF files of {', '.join(_QUANTISATIONS)} do, and safetensors with a tokenizer.json.",
        )
    disable_progress_bars()  # there is one of ours
    with watched(folder, sum(sizes[name] for name in chosen), f"downloading {repo_id}", progress):
        for name in chosen:
            huggingface_hub.hf_hub_download(repo_id, name, revision=found.sha, local_dir=folder)
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's notes on the download


def _explained(repo_id: str, error: Exception) -> PullError:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    if isinstance(error, GatedRepoError):
        return PullError(
            f"{repo_id} is open only to those who accepted its terms.",
            hint="Accept them on its page, then run `hf auth login`.",
        )
    if isinstance(error, RepositoryNotFoundError):
        return PullError(f"There is no repo {repo_id} on Hugging Face, or it is private.")
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return PullError(
        f"Hugging Face does not give out {repo_id}: {reason.rstrip('.')}.",
        hint="Check the network, then pull again.",
    )
