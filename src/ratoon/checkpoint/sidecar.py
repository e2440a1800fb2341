"""`Sidecar`: what was found out about a model file, kept beside it so that the next start is fast.

It is a cache and nothing more: where it is missing, stale, damaged or cannot be written, the model
itself is read. It lies beside the model (`model.gguf.ratoon`, or `.ratoon` in a folder), or in the
user's cache folder where that place cannot be written.

It is believed as long as the stamps of the model's files stay what they were. So a model that is copied or
moved is read once more, and one that is exchanged never passes for the old one.

The file is one line of JSON that tells what it belongs to, then the facts as JSON, then the tokenizer.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ratoon.checkpoint.model_file import ModelFile
from ratoon.errors import UsageError
from ratoon.util.atomic import atomic_file
from ratoon.util.user_cache import user_cache_folder

_FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class Sidecar:
    """`facts` is what JSON can hold; `tokenizer_json` may be empty."""

    facts: dict[str, Any]
    tokenizer_json: str = ""


def load_sidecar(model: Path, files: Sequence[ModelFile]) -> Sidecar | None:
    """Return what `save_sidecar` kept for a model made of these files, if it is there, whole and fresh."""
    for place in _places(model):
        with suppress(OSError, ValueError, KeyError, TypeError):
            stamp_line, _, body = place.read_bytes().partition(b"\n")
            stamp = json.loads(stamp_line)
            facts_bytes = stamp.pop("facts_bytes")
            if stamp == _stamp(files, body):
                return Sidecar(json.loads(body[:facts_bytes]), body[facts_bytes:].decode())
    return None


def save_sidecar(model: Path, files: Sequence[ModelFile], sidecar: Sidecar) -> None:
    """Keep it at the first place that can be written; do nothing where none can."""
    facts = json.dumps(sidecar.facts, ensure_ascii=False, separators=(",", ":")).encode()
    body = facts + sidecar.tokenizer_json.encode()
    stamp = json.dumps(_stamp(files, body) | {"facts_bytes": len(facts)}).encode()
    for place in _places(model):
        with suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(place) as file:
                file.write(stamp + b"\n" + body)
            return


def _stamp(files: Sequence[ModelFile], body: bytes) -> dict[str, object]:
    """Return what a sidecar must agree with to be believed."""
    return {
        "ratoon_sidecar": _FORMAT_VERSION,
        "files": [file.stamp() for file in files],
        "crc32": zlib.crc32(body),
    }


def _places(model: Path) -> Iterator[Path]:
    yield model / ".ratoon" if model.is_dir() else model.with_name(model.name + ".ratoon")
    key = hashlib.sha256(os.fsencode(model.resolve())).hexdigest()[:32]
    with suppress(UsageError):  # there is no such folder
        yield user_cache_folder() / "sidecars" / f"{key}.ratoon"
