"""`ratoon lab` as a user runs it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from ratoon.cli import lab
from ratoon.cli.main import Parser
from ratoon.errors import UsageError
from ratoon.lab.experiments.catalog import EXPERIMENTS
from ratoon.lab.managed_servers import ManagedServers
from ratoon.lab.run_store import RunStore
from ratoon.lab.target import ServerSetup
from ratoon.util.progress import TerminalProgress

MakeServers = Callable[..., ManagedServers]
SMALL = ["--prompt-lens", "70", "72", "--prefix-len", "66", "--output-len", "2"]


def run(*arguments: object) -> int:
    parser = Parser(prog="ratoon lab")
    lab.add_arguments(parser)
    return lab.run(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def url(make_servers: MakeServers) -> Iterator[str]:
    with make_servers().start(ServerSetup()) as target:
        yield target.client.url


def test_a_run_writes_its_folder_and_prints_its_summary(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"

    assert run("pair", "--url", url, *SMALL, "--repetitions", 6, "--out", folder) == 0

    printed = capsys.readouterr()
    assert "The hit is certain: in each of 6 repetitions the second request found 64 of its 72" in (
        printed.out.replace("\n  ", " ")
    )
    assert "report.html" in printed.err
    names = {path.name for path in folder.iterdir()}
    assert names == {"run.json", "samples.jsonl", "report.html", "report.json", "tables"}
    assert len((folder / "samples.jsonl").read_text().splitlines()) == 12


def test_the_report_names_the_command_that_repeats_it(url: str, tmp_path: Path) -> None:
    run("pair", "--url", url, *SMALL, "--repetitions", 1, "--seed", 7, "--out", tmp_path / "run")
    manifest = RunStore.open(tmp_path / "run").manifest
    command = manifest["command"].split()

    assert command[:3] == ["ratoon", "lab", "pair"]
    run(*command[2:], "--out", tmp_path / "again")
    again = RunStore.open(tmp_path / "again").manifest
    assert {name: again[name] for name in ("settings", "command", "source")} == {
        name: manifest[name] for name in ("settings", "command", "source")
    }


def test_a_server_by_url_gets_a_seed_of_its_own(url: str, tmp_path: Path) -> None:
    for name in "ab":
        run("pair", "--url", url, *SMALL, "--repetitions", 1, "--out", tmp_path / name)
    seeds = [RunStore.open(tmp_path / name).manifest["settings"]["seed"] for name in "ab"]

    assert seeds[0] != seeds[1]


def test_json_is_one_object(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("pair", "--url", url, *SMALL, "--repetitions", 1, "--out", tmp_path / "run", "--json")

    assert json.loads(capsys.readouterr().out)["tables"][0]["name"] == "pair"


def test_what_failed_is_the_exit_status(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("counterexamples", "--url", url, "--out", tmp_path / "run") == 1
    assert "other tenant: Two tenants need two keys" in capsys.readouterr().out


def test_an_interrupted_run_says_how_to_go_on_and_does(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    calls = []

    def interrupt(_: object, stage: str, done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TerminalProgress, "__call__", interrupt)
        assert run("pair", "--url", url, *SMALL, "--repetitions", 4, "--out", folder) == 130
    printed = capsys.readouterr()
    assert f"ratoon lab pair --resume {folder}" in printed.err
    assert (folder / "report.html").exists()
    kept = (folder / "samples.jsonl").read_text()

    assert run("pair", "--resume", folder) == 0
    assert (folder / "samples.jsonl").read_text().startswith(kept)
    assert len((folder / "samples.jsonl").read_text().splitlines()) == 8


def test_a_run_goes_on_only_as_it_began(url: str, tmp_path: Path) -> None:
    run("pair", "--url", url, *SMALL, "--repetitions", 1, "--out", tmp_path / "run")

    with pytest.raises(UsageError, match="holds a run of pair"):
        run("sweep", "--resume", tmp_path / "run")
    with pytest.raises(UsageError, match="with the settings"):
        run("pair", "--resume", tmp_path / "run", "--repetitions", 9)


def test_two_runs_are_compared(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "ab":
        run("pair", "--url", url, *SMALL, "--repetitions", 6, "--out", tmp_path / name)
    capsys.readouterr()

    assert run("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "c") == 0
    assert "Of 6 ratios" in capsys.readouterr().out
    assert (tmp_path / "c" / "report.html").exists()


def test_a_replay_needs_a_trace() -> None:
    with pytest.raises(UsageError, match="needs a trace"):
        run("replay")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_setting_has_an_option_with_a_line_of_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(name, "--help")
    text = " ".join(capsys.readouterr().out.split())

    for field in fields(EXPERIMENTS[name]):
        if field.name not in ("trace", "trace_digest"):
            assert f"--{field.name.replace('_', '-')} " in text
            assert field.metadata["doc"] in text


def test_a_quick_sweep_is_a_smaller_one() -> None:
    parser = Parser(prog="ratoon lab")
    lab.add_arguments(parser)
    arguments = parser.parse_args(["sweep", "--quick", "--output-lens", "5"])
    settings = lab.given_settings(arguments)

    assert settings["prefix_lens"] == (128, 512)
    assert settings["output_lens"] == (5,)
