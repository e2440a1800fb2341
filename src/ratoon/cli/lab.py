"""`ratoon lab EXPERIMENT`: run an experiment and report it; `ratoon lab compare A B`: two runs side by side.

The experiment's options are read off its settings. A run writes into a folder from its first sample on;
Ctrl-C makes the report of what there is, and `--resume FOLDER` goes on. Exit status 1: something failed, and
the report shows what.
"""

import argparse
import json
import random
import shlex
import sys
from dataclasses import Field, fields
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ratoon.errors import UsageError
from ratoon.lab.bench import Bench
from ratoon.lab.experiments.catalog import EXPERIMENTS
from ratoon.lab.experiments.replay import file_digest
from ratoon.lab.experiments.settings import from_json
from ratoon.lab.experiments.sweep import QUICK
from ratoon.lab.machine import describe_machine, describe_versions
from ratoon.lab.run_store import RunStore
from ratoon.lab.runs import Source, begin, resume
from ratoon.lab.target import Servers
from ratoon.util.progress import TerminalProgress

if TYPE_CHECKING:
    from ratoon.lab.report.report import Report

SUMMARIES = {
    "pair": "two requests with one long prefix: is there a hit, and is it a gain?",
    "sweep": "prefix and output length, caching, interference: what acts on which latency",
    "counterexamples": "what must not hit, and the full hit: predicted from token ids and measured",
    "burst": "many requests over few prefixes, conversations, documents in two orders",
    "replay": "recorded traffic, scaled to this machine",
    "compare": "two runs of one experiment: ratios with their spread",
}

INTERRUPTED = 130


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the experiments and their options."""
    experiments = parser.add_subparsers(
        dest="experiment", metavar="EXPERIMENT", title="experiments", required=True
    )
    for name, summary in SUMMARIES.items():
        experiment = experiments.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:], allow_abbrev=False
        )
        if name == "compare":
            experiment.add_argument("a", type=Path, metavar="A", help="folder of a run")
            experiment.add_argument("b", type=Path, metavar="B", help="folder of another run")
        else:
            _add_settings(experiment, name)
            _add_server_options(experiment)
            experiment.add_argument(
                "--resume", type=Path, metavar="FOLDER", help="go on with an interrupted run"
            )
        experiment.add_argument(
            "--out", type=Path, metavar="FOLDER", help="where to write (default: ratoon-lab/EXPERIMENT-TIME)"
        )
        experiment.add_argument("--json", action="store_true", help="print the tables as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the experiment, or the comparison."""
    if not all(map(find_spec, ("matplotlib", "scipy"))):
        raise UsageError(
            "The lab needs packages that are not installed.", hint="pip install 'ratoon[lab]' brings them."
        )
    if arguments.experiment == "compare":
        return _compare(arguments)
    store, servers = _resume(arguments) if arguments.resume else _begin(arguments)
    experiment = from_json(EXPERIMENTS[arguments.experiment], store.manifest["settings"])
    status = 0
    try:
        with TerminalProgress() as progress:
            experiment.measure(Bench(servers, store, progress))
    except KeyboardInterrupt:
        again = f"ratoon lab {arguments.experiment} --resume {shlex.quote(str(store.folder))}"
        print(f"\nInterrupted; what was measured is kept. To go on: {again}", file=sys.stderr)
        status = INTERRUPTED
    from ratoon.lab.report.catalog import REPORTS

    return max(status, _show(arguments, REPORTS[arguments.experiment](store), store))


def _show(arguments: argparse.Namespace, report: "Report", store: RunStore) -> int:
    """Write the report's files, print its summary, and return the exit status."""
    from ratoon.lab.report.files import as_json, write_files
    from ratoon.lab.report.terminal import summary

    page = write_files(report, store)
    print(json.dumps(as_json(report, store), ensure_ascii=False) if arguments.json else summary(report))
    print(f"\nReport: {page}", file=sys.stderr)
    return 1 if report.failures else 0


def _add_settings(parser: argparse.ArgumentParser, name: str) -> None:
    if name == "replay":
        parser.add_argument(
            "trace", type=Path, nargs="?", metavar="TRACE", help="JSON lines; docs/experiments.md shows which"
        )
    if name == "sweep":
        parser.add_argument("--quick", action="store_true", help="a smaller sweep, in under two minutes")
    group = parser.add_argument_group("settings")
    for field in _settings(name):
        group.add_argument(
            "--" + field.name.replace("_", "-"),
            type=field.metadata["kind"],
            nargs="+" if isinstance(field.default, tuple) else None,
            choices=field.metadata["choices"] or None,
            metavar=None if field.metadata["choices"] else "N",
            help=field.metadata["doc"] + _default(field.default),
        )


def _settings(name: str) -> "list[Field[Any]]":
    return [field for field in fields(EXPERIMENTS[name]) if "doc" in field.metadata]


def _default(value: object) -> str:
    if value is None:
        return ""  # the text itself says what happens
    values = value if isinstance(value, tuple) else (value,)
    return f" (default: {' '.join(f'{item:g}' if isinstance(item, float) else str(item) for item in values)})"


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument(
        "--model", metavar="MODEL", help="what to serve (default: smollm2); with --url, its name there"
    )
    group.add_argument(
        "--serve-args",
        metavar="TEXT",
        default="",
        help="further options for the `ratoon serve` that is started",
    )
    group.add_argument("--url", help="measure the server at this address instead of starting one")
    group.add_argument("--api-key", metavar="KEY", help="key for the server at --url")
    group.add_argument(
        "--second-api-key", metavar="KEY", help="key of another tenant there, for `counterexamples`"
    )
    group.add_argument(
        "--block-size", type=int, default=16, metavar="N", help="tokens per KV block (default: 16)"
    )


def _begin(arguments: argparse.Namespace) -> tuple[RunStore, Servers]:
    source = Source(
        url=arguments.url,
        model=arguments.model or (None if arguments.url else "smollm2"),
        serve_args=arguments.serve_args,
        block_size=arguments.block_size,
    )
    experiment = EXPERIMENTS[arguments.experiment](**given_settings(arguments))
    folder = arguments.out or _folder(arguments.experiment)
    return begin(arguments.experiment, experiment, source, _keys(arguments), folder)


def _resume(arguments: argparse.Namespace) -> tuple[RunStore, Servers]:
    store, servers = resume(arguments.resume, _keys(arguments))
    if store.manifest["experiment"] != arguments.experiment:
        raise UsageError(f"{arguments.resume} holds a run of {store.manifest['experiment']}.")
    given = [getattr(arguments, field.name) is not None for field in _settings(arguments.experiment)]
    if any(given) or arguments.out:
        raise UsageError(
            "A run goes on with the settings and in the folder that it began with.",
            hint="Give --resume alone.",
        )
    return store, servers


def _keys(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    return (arguments.api_key, arguments.second_api_key)


def given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that are not left to their defaults."""
    given: dict[str, Any] = dict(QUICK) if getattr(arguments, "quick", False) else {}
    for field in _settings(arguments.experiment):
        value = getattr(arguments, field.name)
        if value is not None:
            given[field.name] = tuple(value) if isinstance(value, list) else value
    if arguments.url and arguments.seed is None:
        given["seed"] = random.randrange(2**31)  # the server may remember the prompts of another run
    if arguments.experiment == "replay":
        if arguments.trace is None:
            raise UsageError("A replay needs a trace.", hint="ratoon lab replay TRACE")
        given |= {"trace": str(arguments.trace), "trace_digest": file_digest(arguments.trace)}
    return given


def _compare(arguments: argparse.Namespace) -> int:
    from ratoon.lab.report.compare import compare

    sides = {"a": RunStore.open(arguments.a), "b": RunStore.open(arguments.b)}
    report = compare(**sides)
    manifest = {
        "experiment": "compare",
        "command": shlex.join(["ratoon", "lab", "compare", str(arguments.a), str(arguments.b)]),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "server": {},
        "settings": {name: f"{store.folder}: {store.manifest['command']}" for name, store in sides.items()},
    }
    return _show(arguments, report, RunStore.create(arguments.out or _folder("compare"), manifest))


def _folder(name: str) -> Path:
    return Path("ratoon-lab", f"{name}-{datetime.now():%Y%m%d-%H%M%S}")
