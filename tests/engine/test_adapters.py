"""Adapters by name and by content: what a name stands for, and how long what it stood for stays."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ratoon.checkpoint.adapter_folder import AdapterFolder
from ratoon.engine.adapters import AdapterStore, LoadedAdapter, PreparedAdapter
from ratoon.errors import (
    AdapterBudgetError,
    CheckpointError,
    CorruptCheckpointError,
    InvalidParameterError,
    UnknownAdapterError,
)

SIZE, BUDGET = 10_000, 25_000
MakeFolder = Callable[..., Path]


class Weights:
    """Stands for memory."""


@pytest.fixture
def store() -> AdapterStore:
    """Return a store in which every adapter takes `SIZE` of `BUDGET` bytes."""
    return AdapterStore(lambda folder: PreparedAdapter(SIZE, Weights), BUDGET)


@pytest.fixture
def folder(tmp_path: Path, write_adapter: Callable[..., Path]) -> MakeFolder:
    """Return a function that writes a folder whose content depends on a seed."""

    def make(seed: int, name: str | None = None, **settings: object) -> Path:
        rng = np.random.default_rng(seed)
        pair = rng.standard_normal((2, 8), np.float32), rng.standard_normal((8, 2), np.float32)
        return write_adapter(
            tmp_path / (name or f"adapter-{seed}"), {"model.layers.0.mlp.up_proj": pair}, **settings
        )

    return make


def test_a_name_stands_for_what_was_loaded(store: AdapterStore, folder: MakeFolder) -> None:
    first, second = store.load("first", folder(1)), store.load("second", folder(2))
    assert store.get("first") is first
    assert store.get("second") is second
    assert first.digest != second.digest
    assert store.weights_of(first.digest) is first.weights
    assert list(store.by_name) == ["first", "second"]
    assert store.num_bytes == 2 * SIZE


def test_an_unknown_name_is_refused_with_the_known_ones(store: AdapterStore, folder: MakeFolder) -> None:
    with pytest.raises(UnknownAdapterError, match="'nobody'") as error:
        store.get("nobody")
    assert error.value.hint == "Loaded are: none."
    store.load("somebody", folder(1))
    with pytest.raises(UnknownAdapterError) as error:
        store.unload("nobody")
    assert "somebody" in str(error.value.hint)


def test_two_names_for_one_content_hold_one_copy(store: AdapterStore, folder: MakeFolder) -> None:
    first, second = store.load("first", folder(1)), store.load("second", folder(1, "copy"))
    assert first is second
    assert store.num_bytes == SIZE
    store.unload("first")
    assert store.get("second") is first


def test_another_scale_is_another_content(store: AdapterStore, folder: MakeFolder) -> None:
    assert store.load("a", folder(1)) is not store.load("b", folder(1, "louder", lora_alpha=99))


def test_loading_again_replaces_and_frees_what_nobody_uses(store: AdapterStore, folder: MakeFolder) -> None:
    old = weakref.ref(store.load("name", folder(1)).weights)
    new = store.load("name", folder(2))
    assert store.get("name") is new
    assert old() is None
    assert store.num_bytes == SIZE


def test_loading_the_same_again_changes_nothing(store: AdapterStore, folder: MakeFolder) -> None:
    assert store.load("name", folder(1)) is store.load("name", folder(1))


def test_what_a_request_holds_stays_until_it_lets_go(store: AdapterStore, folder: MakeFolder) -> None:
    held: list[LoadedAdapter] = [store.load("name", folder(1))]
    weights, digest = weakref.ref(held[0].weights), held[0].digest
    store.unload("name")
    assert store.weights_of(digest) is weights()
    assert store.num_bytes == SIZE
    held.clear()
    assert weights() is None
    assert store.num_bytes == 0
    with pytest.raises(KeyError):
        store.weights_of(digest)


def test_what_is_still_held_is_found_again_by_its_content(store: AdapterStore, folder: MakeFolder) -> None:
    held = store.load("name", folder(1))
    store.unload("name")
    assert store.load("other", folder(1)) is held


def test_a_full_budget_refuses_and_changes_nothing(store: AdapterStore, folder: MakeFolder) -> None:
    first = store.load("first", folder(1))
    held = store.load("second", folder(2))
    store.unload("second")
    with pytest.raises(
        AdapterBudgetError, match=r"takes 9\.8 KiB, but of 24\.4 KiB for adapters 19\.5 KiB are in use"
    ):
        store.load("first", folder(3))
    assert store.get("first") is first
    assert list(store.by_name) == ["first"]
    del held
    store.load("third", folder(3))
    assert store.num_bytes == 2 * SIZE


def test_a_folder_that_is_none_leaves_the_name_as_it_was(
    store: AdapterStore, folder: MakeFolder, tmp_path: Path
) -> None:
    first = store.load("name", folder(1))
    with pytest.raises(CheckpointError):
        store.load("name", tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="DoRA"):
        store.load("name", folder(2, use_dora=True))
    assert store.get("name") is first


def test_an_adapter_that_does_not_fit_the_model_takes_no_memory(folder: MakeFolder) -> None:
    def refuse(folder: AdapterFolder) -> PreparedAdapter:
        raise CorruptCheckpointError("It was made for another model.")

    store = AdapterStore(refuse, BUDGET)
    with pytest.raises(CorruptCheckpointError):
        store.load("name", folder(1))
    assert (store.num_bytes, dict(store.by_name)) == (0, {})


def test_a_name_must_not_be_empty(store: AdapterStore, folder: MakeFolder) -> None:
    with pytest.raises(InvalidParameterError, match="empty"):
        store.load("", folder(1))


def test_nothing_waits_for_the_garbage_collector(folder: MakeFolder) -> None:
    """Memory that is counted as free must be free."""
    gc.disable()
    try:
        store = AdapterStore(lambda folder: PreparedAdapter(SIZE, Weights), SIZE)
        for seed in range(5):
            store.load("name", folder(seed))
            store.unload("name")
    finally:
        gc.enable()
    found: Any = store.num_bytes
    assert found == 0


def test_memory_may_be_asked_for_while_another_thread_loads(store: AdapterStore, folder: MakeFolder) -> None:
    first = store.load("first", folder(1))
    others = iter([2])

    class Nosy:
        """Loads another adapter in the middle of the sum."""

        @property
        def num_bytes(self) -> int:
            for seed in others:
                store.load("second", folder(seed))
            return SIZE

    nosy = Nosy()
    store._by_digest[first.digest] = nosy  # type: ignore[assignment]
    assert store.num_bytes == SIZE
    assert store.num_bytes == 2 * SIZE
