"""`AdapterStore`: the LoRA adapters in memory, by name, under a budget of bytes.

A name stands for content: weights and scale, known by their digest. Loading under a name that is taken
replaces what it stands for, and two names for the same content hold one copy. An adapter stays in memory as
long as a name or a request that is not finished refers to it, so requests end on the weights they
began with, and the last to let go frees the memory. The store knows no arrays; `prepare` makes them.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ratoon.checkpoint.adapter_folder import AdapterFolder, read_adapter
from ratoon.errors import AdapterBudgetError, InvalidParameterError, UnknownAdapterError
from ratoon.util.sizes import format_bytes


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LoadedAdapter:
    """One content in memory. `weights` are what the runner computes with."""

    digest: bytes
    num_bytes: int
    weights: Any


@dataclass(frozen=True, slots=True)
class PreparedAdapter:
    """An adapter that fits the model, how much memory it will take, and how to put it there."""

    num_bytes: int
    pack: Callable[[], object]


class AdapterStore:
    """Methods may be called from any thread."""

    def __init__(self, prepare: Callable[[AdapterFolder], PreparedAdapter], budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._prepare = prepare
        self._by_name: dict[str, LoadedAdapter] = {}
        self._by_digest: WeakValueDictionary[bytes, LoadedAdapter] = WeakValueDictionary()
        self._lock = threading.Lock()

    @property
    def by_name(self) -> Mapping[str, LoadedAdapter]:
        """What every name stands for now."""
        return dict(self._by_name)

    @property
    def num_bytes(self) -> int:
        """Memory in use, also by adapters that have no name any more but are still needed."""
        held = [ref() for ref in self._by_digest.valuerefs()]  # a copy: others may load meanwhile
        return sum(adapter.num_bytes for adapter in held if adapter is not None)

    def get(self, name: str) -> LoadedAdapter:
        """Return what a name stands for. Raises `UnknownAdapterError`."""
        adapter = self._by_name.get(name)
        if adapter is None:
            known = ", ".join(self._by_name) or "none"
            raise UnknownAdapterError(f"There is no adapter {name!r}.", hint=f"Loaded are: {known}.")
        return adapter

    def weights_of(self, digest: bytes) -> Any:
        """Return the weights of a content that a name or a request still holds."""
        return self._by_digest[digest].weights

    def load(self, name: str, path: str | Path) -> LoadedAdapter:
        """Let a name stand for what is in a folder now.

        Raises a `CheckpointError` where that is no adapter for this model, and `AdapterBudgetError` where it
        does not fit beside those in memory, the one that it would replace included; nothing is changed then.
        """
        if not name:
            raise InvalidParameterError("An adapter's name is empty.")
        folder = read_adapter(path, self.budget_bytes)
        with self._lock:
            adapter = self._by_digest.get(folder.digest) or self._pack(folder)
            self._by_name[name] = adapter
        return adapter

    def unload(self, name: str) -> None:
        """Forget a name; requests that have begun are not disturbed. Raises `UnknownAdapterError`."""
        with self._lock:
            self.get(name)
            del self._by_name[name]

    def _pack(self, folder: AdapterFolder) -> LoadedAdapter:
        prepared = self._prepare(folder)
        in_use = self.num_bytes
        if in_use + prepared.num_bytes > self.budget_bytes:
            raise AdapterBudgetError(
                f"The adapter {folder.path} takes {format_bytes(prepared.num_bytes)}, but of "
                f"{format_bytes(self.budget_bytes)} for adapters {format_bytes(in_use)} are in use.",
                hint="Raise adapter_bytes, or unload another; it is freed when its last request has ended.",
            )
        adapter = LoadedAdapter(folder.digest, prepared.num_bytes, prepared.pack())
        self._by_digest[folder.digest] = adapter
        return adapter
