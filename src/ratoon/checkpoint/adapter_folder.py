"""`AdapterFolder`: a LoRA adapter as PEFT saves it, in a folder of `adapter_config.json` and one safetensors.

The weights' bytes are read at once and kept, not mapped, so that digest and arithmetic are of the same bytes
whatever happens to the file. Names and shapes are checked among themselves here; whether they fit a model is
not known here. What would change the computation and is not implemented is refused by name; of a setting
that nobody here has heard of, that is taken for granted.
Format: https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

import hashlib
import json
import math
import os.path
import re
import reprlib
import stat
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ratoon.checkpoint.digest import weights_digest
from ratoon.checkpoint.safetensors_folder import read_tensors
from ratoon.checkpoint.tensor import RawTensor
from ratoon.errors import (
    AdapterBudgetError,
    CheckpointError,
    CorruptCheckpointError,
    MissingCheckpointError,
    UnsupportedModelError,
)
from ratoon.util.progress import no_progress
from ratoon.util.sizes import format_bytes

CONFIG_NAME = "adapter_config.json"
WEIGHTS_NAME = "adapter_model.safetensors"

MAX_ALPHA = 1e30
MAX_RANK = 1 << 16
"""Far beyond any use, and near enough that float32 holds every scale."""

_READ = {"peft_type", "r", "lora_alpha", "use_rslora", "target_modules", "init_lora_weights"}
_WITHOUT_EFFECT = {
    "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "inference_mode", "layers_pattern", "layers_to_transform", "loftq_config",
    "lora_dropout", "lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "revision",
    "runtime_config", "task_type",
}  # fmt: skip
"""Settings that tell how the weights came about, or which there are, and change nothing once they are."""

_NOTHING: tuple[object, ...] = (None, False, 0, "none", [], {})
"""Values by which any other setting asks for nothing."""

_NAMES = {"use_dora": "DoRA", "use_qalora": "QA-LoRA", "modules_to_save": "modules trained as a whole"}
_PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base model as it was."""

_TENSOR = re.compile(
    r"base_model\.model\.(model\.layers\.(0|[1-9][0-9]{0,5})\.(?:self_attn\.[qkvo]|mlp\.(?:gate|up|down))_proj)"
    r"\.lora_([AB])\.weight"
)


@dataclass(frozen=True, slots=True)
class LowRankPair:
    """What an adapter adds to one weight W [out, in]: `scale` times b [out, rank] times a [rank, in]."""

    a: RawTensor
    b: RawTensor


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """`pairs` are found by layer and name of the module (`q_proj`). `digest` is of all that has an effect."""

    path: Path
    scale: float
    pairs: Mapping[tuple[int, str], LowRankPair]
    digest: bytes


def read_adapter(path: str | Path, max_bytes: int = 1 << 40) -> AdapterFolder:
    """Read a whole folder. Raises `CheckpointError` of some kind where it cannot be used as it is.

    A file of more than `max_bytes` is not read: `AdapterBudgetError`.
    """
    path = Path(os.path.expanduser(path))
    if not os.path.isdir(path):  # unlike Path.is_dir, says no where it may not look
        raise MissingCheckpointError(
            f"There is no adapter folder {path}.",
            hint=f"An adapter is a folder with {CONFIG_NAME} and {WEIGHTS_NAME}, as PEFT saves it.",
        )
    config = _AdapterConfig(path / CONFIG_NAME, max_bytes)
    file = path / WEIGHTS_NAME
    tensors = list(read_tensors(memoryview(_read(file, max_bytes)), file))
    digest = hashlib.sha256(b"ratoon adapter 1\n" + struct.pack("<d", config.scale))
    digest.update(weights_digest(tensors, no_progress))
    return AdapterFolder(path, config.scale, _pairs(tensors, config, file), digest.digest())


class _AdapterConfig:
    """The settings that are implemented; any other raises `UnsupportedModelError`."""

    def __init__(self, file: Path, max_bytes: int) -> None:
        self.file = file
        try:
            values = json.loads(_read(file, max_bytes))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise CorruptCheckpointError(f"{file} is not a JSON object.")
        self._values: dict[str, Any] = values
        self._refuse_unsupported()
        self.rank = self._rank()
        self.scale = self._scale()

    def targets(self, module: str) -> bool:
        """Whether a list of targets, if there is one, has this module."""
        targets = self._values.get("target_modules")
        if targets is None or isinstance(targets, str):
            return True  # an expression is not run: a hostile one would take for ever
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            self._corrupt(f"its target_modules are {reprlib.repr(targets)}")
        return any(f".{module}".endswith(f".{target}") for target in targets)

    def _refuse_unsupported(self) -> None:
        if (kind := self._values.get("peft_type")) != "LORA":
            self._unsupported(f"is of the type {kind!r}")
        if (start := self._values.get("init_lora_weights")) not in _PLAIN_STARTS:
            self._unsupported(f"was trained on a changed base model (init_lora_weights is {start!r})")
        for key in sorted(self._values.keys() - _READ - _WITHOUT_EFFECT):
            if self._values[key] not in _NOTHING:
                self._unsupported(
                    f"asks for {_NAMES.get(key, key)} ({key} is {reprlib.repr(self._values[key])})"
                )

    def _rank(self) -> int:
        rank = self._values.get("r")
        if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= MAX_RANK:
            self._corrupt(f"its rank r is {rank!r}")
        return rank

    def _scale(self) -> float:
        alpha, stabilised = self._values.get("lora_alpha"), self._values.get("use_rslora", False)
        if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not abs(alpha) <= MAX_ALPHA:
            self._corrupt(f"its lora_alpha is {alpha!r}")
        if not isinstance(stabilised, bool):
            self._corrupt(f"its use_rslora is {stabilised!r}")
        return alpha / (math.sqrt(self.rank) if stabilised else self.rank)  # rsLoRA: arXiv:2312.03732

    def _unsupported(self, what: str) -> NoReturn:
        raise UnsupportedModelError(f"The adapter {self.file.parent} {what}, which is not implemented.")

    def _corrupt(self, what: str) -> NoReturn:
        raise CorruptCheckpointError(f"{self.file} cannot be right: {what}.")


def _pairs(
    tensors: Iterable[RawTensor], config: _AdapterConfig, file: Path
) -> dict[tuple[int, str], LowRankPair]:
    halves: dict[tuple[int, str], dict[str, RawTensor]] = {}
    for tensor in tensors:
        match = _TENSOR.fullmatch(tensor.name)
        if match is None:
            raise UnsupportedModelError(
                f"{file} has the tensor {tensor.name!r}, which is not implemented.",
                hint="Adapters may change the weights of attention (q, k, v, o) and MLP (gate, up, down).",
            )
        module, layer, half = match.groups()
        if not config.targets(module):
            raise CorruptCheckpointError(
                f"{file} has weights for {module}, which its target_modules leave out."
            )
        halves.setdefault((int(layer), module.rpartition(".")[2]), {})[half] = tensor
    if not halves:
        raise CorruptCheckpointError(f"{file} holds no weights.")
    return {place: _pair(pair, config.rank, file) for place, pair in sorted(halves.items())}


def _pair(halves: Mapping[str, RawTensor], rank: int, file: Path) -> LowRankPair:
    for name, tensor in halves.items():
        if len(halves) != 2:
            raise CorruptCheckpointError(f"{file} has {tensor.name!r} without its other half.")
        if tensor.dtype not in ("F32", "F16", "BF16"):
            raise UnsupportedModelError(f"{file} stores its tensor {tensor.name!r} as {tensor.dtype}.")
        if len(tensor.shape) != 2 or tensor.shape["AB".index(name)] != rank:
            raise CorruptCheckpointError(
                f"{file} has {tensor.name!r} of shape {list(tensor.shape)}, but the rank is {rank}."
            )
    return LowRankPair(halves["A"], halves["B"])


def _read(file: Path, max_bytes: int) -> bytes:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device might never end
            raise CheckpointError(f"{file} is not a regular file.")
        if status.st_size > max_bytes:
            raise AdapterBudgetError(
                f"{file} has {format_bytes(status.st_size)}, but adapters have {format_bytes(max_bytes)}.",
                hint="Raise adapter_bytes.",
            )
        return file.read_bytes()
    except FileNotFoundError:
        other = (
            "PEFT's older .bin files can run code and are not read." if file.name == WEIGHTS_NAME else None
        )
        raise MissingCheckpointError(f"There is no file {file}.", hint=other) from None
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}.") from error
