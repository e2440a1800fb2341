import errno
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
import pytest

from ratoon.checkpoint.hub import choose_files, fetch_repo, is_repo_id
from ratoon.errors import PullError
from ratoon.util.progress import no_progress


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HuggingFaceTB/SmolLM2-135M-Instruct", True),
        ("a/b.gguf", True),
        ("smollm2", False),
        ("a/b/c", False),
        ("/a", False),
        ("../a", False),
        ("./a", False),
        ("a/..", False),
        ("a b/c", False),
    ],
)
def test_a_repo_id_is_told_by_its_form(name: str, expected: bool) -> None:
    assert is_repo_id(name) is expected


FOLDER = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "README.md"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["m-Q4_K_M.gguf", "m-Q8_0.gguf", "m-Q4_0.gguf", *FOLDER], ["m-Q8_0.gguf"]),
        (["m.q4_0.gguf", "m.f16.gguf"], ["m.q4_0.gguf"]),
        (["mmproj-m-F16.gguf", "m-BF16.gguf"], ["m-BF16.gguf"]),
        (["m-Q8_0-00001-of-00002.gguf", *FOLDER], FOLDER[:-1]),
        (["m-IQ4_0.gguf", "inner/m-Q8_0.gguf"], []),
        (["config.json", "model.safetensors"], []),
        (["model-1.safetensors", "model.safetensors.index.json", *FOLDER[:2], "original/model.pth"],
         ["model-1.safetensors", "model.safetensors.index.json", *FOLDER[:2]]),
        ([], []),
    ],
)  # fmt: skip
def test_a_gguf_that_runs_is_preferred_to_the_folder(files: list[str], expected: list[str]) -> None:
    assert choose_files(dict.fromkeys(files, 1)) == expected


@dataclass
class FakeFile:
    rfilename: str
    size: int


@dataclass
class FakeInfo:
    siblings: list[FakeFile]
    sha: str = "revision"


def offer(monkeypatch: pytest.MonkeyPatch, *names: str, error: Exception | None = None) -> None:
    """Put a repo with these files in the place of the network."""

    def model_info(_: object, repo_id: str, files_metadata: bool) -> FakeInfo:
        return FakeInfo([FakeFile(name, 4) for name in names])

    def download(repo_id: str, name: str, *, revision: str, local_dir: Path) -> None:
        assert revision == "revision"
        if error is not None:
            raise error
        (local_dir / ".cache").mkdir()
        (local_dir / name).write_text(name)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def test_the_chosen_files_and_nothing_else_end_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, "m-Q8_0.gguf", "m-F32.gguf")
    fetch_repo("owner/name", tmp_path, no_progress)
    assert [path.name for path in tmp_path.iterdir()] == ["m-Q8_0.gguf"]


def test_a_repo_without_a_model_that_runs_says_what_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, "m-Q2_K.gguf")
    with pytest.raises(PullError, match="owner/name") as caught:
        fetch_repo("owner/name", tmp_path, no_progress)
    assert caught.value.hint is not None
    assert "Q8_0" in caught.value.hint


def test_a_failing_network_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "m-Q8_0.gguf", error=ConnectionError("no route\nto host"))
    with pytest.raises(PullError, match=r"owner/name: no route\.$"):
        fetch_repo("owner/name", tmp_path, no_progress)


def test_a_full_disk_is_left_to_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "m-Q8_0.gguf", error=OSError(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="full"):
        fetch_repo("owner/name", tmp_path, no_progress)
