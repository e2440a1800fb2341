"""From what a user calls a model to where it lies: the same rule for every command and for the library."""

import os.path
from pathlib import Path

from ratoon.checkpoint.catalog import CATALOG, model_path, pulled_folder
from ratoon.checkpoint.formats import model_at
from ratoon.checkpoint.hub import is_repo_id
from ratoon.errors import UnknownModelError


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
