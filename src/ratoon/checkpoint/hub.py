"""Models from Hugging Face, through `huggingface_hub`, which comes with `tokenizers`."""

import re
from collections.abc import Mapping
from pathlib import Path

from ratoon.checkpoint.folder_watch import watched
from ratoon.errors import PullError
from ratoon.util.progress import Progress

_QUANTISATIONS = ("Q8_0", "Q4_1", "Q4_0", "BF16", "F16", "F32")
"""Those that run, in the order in which a repo's files are preferred: nearly lossless and small comes first."""

_FOLDER_FILES = re.compile(
    r"config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|chat_template\.jinja"
    r"|model.*\.safetensors|model\.safetensors\.index\.json"
)


def is_repo_id(name: str) -> bool:
    """Whether a name has the form `owner/name`."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", name, re.ASCII) is not None and not name.startswith(".")


def choose_files(sizes: Mapping[str, int]) -> list[str]:
    """Return the files of a repo to fetch: one GGUF of a quantisation that runs, else the safetensors folder, else none."""
    for quantisation in _QUANTISATIONS:
        pattern = re.compile(rf"(?!mmproj).*[-._]{quantisation}\.gguf", re.IGNORECASE)
        if fitting := [name for name in sizes if pattern.fullmatch(name)]:
            return [min(fitting, key=lambda name: (sizes[name], name))]
    chosen = [name for name in sizes if _FOLDER_FILES.fullmatch(name)]
    return chosen if {"config.json", "tokenizer.json"} <= set(chosen) else []


def fetch_repo(repo_id: str, folder: Path, progress: Progress) -> None:
    """Put a repo's model into the folder. Raises `PullError`."""
    import huggingface_hub  # a slow import that nothing else needs

    try:
        found = huggingface_hub.HfApi().model_info(repo_id, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in found.siblings or []}
        chosen = choose_files(sizes)
        if not chosen:
            raise PullError(
                f"{repo_id} has no model that runs here.",
                hint=f"It needs a GGUF file of {', '.join(_QUANTISATIONS)}, or safetensors with a tokenizer.json.",
            )
        with watched(folder, sum(sizes[name] for name in chosen), f"downloading {repo_id}", progress):
            for name in chosen:
                huggingface_hub.hf_hub_download(repo_id, name, revision=found.sha, local_dir=folder)
    except huggingface_hub.errors.GatedRepoError as error:
        raise PullError(
            f"{repo_id} is open only to those who accepted its terms.",
            hint="Accept them there, then `hf auth login`.",
        ) from error
    except huggingface_hub.errors.RepositoryNotFoundError as error:
        raise PullError(f"There is no repo {repo_id} on Hugging Face, or it is private.") from error
    except (huggingface_hub.errors.HfHubHTTPError, OSError) as error:
        raise PullError(f"Hugging Face did not give out {repo_id}: {type(error).__name__}.") from error
