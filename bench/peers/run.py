"""Ratoon and its peers, side by side: the same work, interleaved, on this machine.

    python bench/peers/run.py setup [PEER ...]     makes environments under bench/peers/.environments
    python bench/peers/run.py run [--minutes 9]    measures what is missing, and prints medians and ratios
    python bench/peers/run.py table                prints what was measured so far

`run` goes round by round: in each, every peer does every piece of work once. It stops where the next piece
would take it past --minutes, and goes on from there when it is called again; figures gather in --out. A peer
that cannot be installed, fails at a piece of work, or takes longer than --limit seconds for it, is shown as
such, never guessed.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from comparison import Comparison, Sample
from peers import HERE, PEERS, REQUIREMENTS, PeerSpec, set_up
from process import START_LIMIT_S, PeerError, PeerProcess, TooSlowError
from table import table
from work import PEAK_MEMORY, START, WORK, Call, Work, ids

from ratoon.checkpoint.model_catalog import resolve_model
from ratoon.lab.machine import describe_machine
from ratoon.util.atomic import atomic_folder

UNKNOWN_S = 90.0
"""What a piece of work that was never done is taken to need, all peers together."""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="install peers")
    setup.add_argument("peers", nargs="*", choices=[[], *REQUIREMENTS], default=[])
    run = commands.add_parser("run", help="measure")
    show = commands.add_parser("table", help="print the table")
    run.add_argument("--only", nargs="*", metavar="PEER", help="names as in the table's head")
    run.add_argument("--work", nargs="*", metavar="NAME", help="only work whose name starts like this")
    run.add_argument("--rounds", type=int, default=5, help="(default: %(default)s)")
    run.add_argument("--minutes", type=float, default=9, help="for this call (default: %(default)s)")
    run.add_argument("--limit", type=float, default=60, help="seconds a call may take (default: %(default)s)")
    run.add_argument("--model", default="smollm2", help="a GGUF model of the Llama family")
    run.add_argument("--threads", type=int, default=2)
    run.add_argument("--seed", type=int, default=1)
    for command in (run, show):
        command.add_argument("--out", type=Path, default=HERE / "result.json")
    for command in (setup, run):
        command.add_argument("--environments", type=Path, default=HERE / ".environments")
    args = parser.parse_args()
    if args.command == "setup":
        return install(args)
    comparison = Comparison(args.out, conditions(args) if args.command == "run" else None)
    if args.command == "run":
        Bench(args, comparison).run()
    print(table(comparison))
    return 0


def install(args: argparse.Namespace) -> int:
    """Set up the named peers, or all."""
    failed = False
    for environment in args.peers or REQUIREMENTS:
        try:
            set_up(environment, args.environments)
            print(f"{environment}: installed")
        except subprocess.CalledProcessError as error:
            failed = True
            print(f"{environment}: could not be installed ({error})")
    return int(failed)


def conditions(args: argparse.Namespace) -> dict[str, Any]:
    """Return what must be equal for figures to be put side by side."""
    machine = {name: fact for name, fact in describe_machine().items() if "load" not in name}
    return machine | {"threads": args.threads, "seed": args.seed, "model": resolve_model(args.model).name}


class Bench:
    """Peers in their processes, started when they are first needed, and restarted where they ended."""

    def __init__(self, args: argparse.Namespace, comparison: Comparison) -> None:
        self._args = args
        self._comparison = comparison
        self._model = resolve_model(args.model)
        self._specs = [spec for spec in PEERS if not args.only or spec.name in args.only]
        self._work = [w for w in WORK if not args.work or any(w.name.startswith(name) for name in args.work)]
        self._running: dict[str, PeerProcess] = {}

    def run(self) -> None:
        """Measure what is missing while there is time."""
        converted = self._args.environments / "models"
        if any(spec.model for spec in self._specs) and not converted.exists():
            with atomic_folder(converted) as folder:
                command = [sys.executable, str(HERE / "convert.py"), str(self._model), str(folder)]
                subprocess.run(command, check=True)
        begun = time.monotonic()
        pieces = [(number, work) for number in range(self._args.rounds) for work in self._work]
        try:
            for done, (number, work) in enumerate(pieces):
                specs = self._missing(number, work)
                expected_s = self._comparison.expected_s(work.name) or UNKNOWN_S
                if specs and time.monotonic() + expected_s > begun + self._args.minutes * 60:
                    print(f"{done} of {len(pieces)} pieces are done; call again to go on.", file=sys.stderr)
                    break
                if specs:
                    print(f"round {number + 1} of {self._args.rounds}: {work.name}", file=sys.stderr)
                    self._measure(number, work, specs)
        finally:
            for process in self._running.values():
                process.stop()

    def _missing(self, number: int, work: Work) -> list[PeerSpec]:
        """Return the peers to measure; who goes first changes from round to round and from work to work."""
        missing = [
            spec
            for spec in self._specs
            if not self._comparison.has(work.name, number, spec.name)
            and not self._comparison.without_figures(work.name, spec.name)
        ]
        first = (number + WORK.index(work)) % max(1, len(missing))
        return missing[first:] + missing[:first]

    def _measure(self, number: int, work: Work, specs: list[PeerSpec]) -> None:
        samples: list[Sample] = []
        for spec in specs:
            sample: Sample = {"work": work.name, "round": number, "peer": spec.name}
            begun = time.perf_counter()
            try:
                process = self._start(spec) if work.fresh else self._started(spec)
            except (PeerError, TooSlowError) as error:
                self._comparison.not_run[spec.name] = str(error) or "takes too long to start"
                self._specs.remove(spec)
                continue
            try:
                sample["figures"] = self._figures(process, number, work)
            except TooSlowError:
                sample["over_s"] = self._args.limit
            except PeerError as error:
                sample["error"] = str(error)
            if work.fresh:
                process.stop()
            samples.append(sample | {"wall_s": time.perf_counter() - begun})
        self._comparison.samples += samples
        self._comparison.save()

    def _figures(self, process: PeerProcess, number: int, work: Work) -> dict[str, float]:
        *before, timed = work.calls(random.Random(f"{self._args.seed} {number} {work.name}"))
        for call in before:
            process.run(call, self._args.limit)
        figures = {work.rows[0].name: work.figure(process.run(timed, self._args.limit))}
        if work.fresh:
            figures |= {START.name: process.start_s, PEAK_MEMORY.name: process.peak_memory_bytes / 1e6}
        return figures

    def _started(self, spec: PeerSpec) -> PeerProcess:
        """Return the peer's process, warmed up."""
        process = self._running.get(spec.name)
        if process is None or not process.is_alive:
            process = self._start(spec)
            rng = random.Random(f"{self._args.seed} warm-up")
            for batch in (1, 8):
                process.run(Call([ids(rng, 256) for _ in range(batch)], 4), START_LIMIT_S)
            self._running[spec.name] = process
        return process

    def _start(self, spec: PeerSpec) -> PeerProcess:
        model = self._model if spec.model is None else self._args.environments / "models" / spec.model
        process = PeerProcess(spec, model, self._args.environments, self._args.threads)
        self._comparison.peers[spec.name] = process.description
        self._comparison.not_run.pop(spec.name, None)
        return process


if __name__ == "__main__":
    sys.exit(main())
