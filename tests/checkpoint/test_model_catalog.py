from collections.abc import Callable
from pathlib import Path

import pytest

from ratoon.checkpoint.model_catalog import CATALOG, model_path, models_folder, pulled_folder, resolve_model
from ratoon.errors import MissingCheckpointError, UnknownModelError

WriteGguf = Callable[..., Path]


def test_every_entry_says_all_that_a_download_needs() -> None:
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert all("==" in package for package in entry.packages), "a fixed version"
        assert len(bytes.fromhex(entry.sha256)) == 32
        assert entry.file.endswith(".gguf")
        assert entry.licence


def test_a_repo_gets_one_folder_among_the_others() -> None:
    assert pulled_folder("owner/name") == models_folder() / "owner--name"


def test_a_pulled_model_is_found_and_another_leads_to_pull() -> None:
    with pytest.raises(UnknownModelError) as caught:
        model_path("smollm2")
    assert caught.value.hint == "Run `ratoon pull smollm2`."
    file = pulled_folder("smollm2") / "weights.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    assert model_path("smollm2") == file


def pretend_pulled(name: str) -> Path:
    file = pulled_folder(name) / "weights.gguf"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


def test_a_name_a_path_and_a_repo_id_resolve(write_gguf: WriteGguf) -> None:
    path, known, repo = write_gguf(), pretend_pulled("smollm2"), pretend_pulled("owner/name")
    assert resolve_model("smollm2") == known
    assert resolve_model(path) == path
    assert resolve_model(str(path)) == path
    assert resolve_model(path.parent) == path
    assert resolve_model("owner/name") == repo


def test_a_catalogue_name_goes_before_a_path_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = pretend_pulled("smollm2")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").touch()
    assert resolve_model("smollm2") == pulled
    assert resolve_model("./smollm2") == Path("smollm2")


def test_a_path_in_the_home_folder_may_begin_with_a_tilde(
    write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_gguf()
    monkeypatch.setenv("HOME", str(path.parent))
    assert resolve_model("~/model.gguf") == path


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("smollm2", "ratoon pull smollm2"),
        ("owner/name", "ratoon pull owner/name"),
        ("models/missing.gguf", "ratoon pull smollm2"),
        ("/nowhere/at/all", "ratoon pull smollm2"),
        ("nonsense", "ratoon pull smollm2"),
        ("long" * 2000, "ratoon pull smollm2"),
        ("nul\0", "ratoon pull smollm2"),
        ("~nobody-of-that-name/model.gguf", "ratoon pull smollm2"),
        ("", "ratoon pull smollm2"),
    ],
)
def test_an_unknown_model_leads_to_pull(model: str, hint: str) -> None:
    with pytest.raises(UnknownModelError) as caught:
        resolve_model(model)
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert caught.value.exit_status == 2


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingCheckpointError):
        resolve_model(tmp_path)
