"""Ratoon and its peers, side by side: the same work, interleaved, on this machine.

    python bench/peers/run.py setup [PEER ...]      makes environments under bench/peers/.environments
    python bench/peers/run.py run [--repetitions 5]  compares what is installed: medians and ratios, and JSON

A peer that cannot be installed or that fails at a piece of work is shown as such, never guessed.
"""

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import IO

from peers import HERE, PEERS, REQUIREMENTS, PeerSpec, python_of, set_up
from work import WORK, Call, Work

ENVIRONMENTS = HERE / ".environments"


class RunningPeer:
    """A peer's process, loaded and waiting for work."""

    def __init__(self, spec: PeerSpec, model: Path, root: Path, log: Path, threads: int) -> None:
        python = python_of(spec.environment, root)
        if not python.exists():
            raise RuntimeError(f"not installed; run: python bench/peers/run.py setup {spec.environment}")
        command = [str(python), str(HERE / "worker.py"), spec.worker, str(model), "--threads", str(threads)]
        start = time.perf_counter()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        ready = self._answer()
        self.start_s = time.perf_counter() - start
        self.description: str = ready["ready"]["description"]
        self.peak_memory_bytes = 0

    def run(self, call: Call) -> list[list[float]]:
        """Return the times of the tokens; raises `RuntimeError` with the peer's own words."""
        print(
            json.dumps({"prompts": call.prompts, "max_tokens": call.max_tokens}), file=self._pipe, flush=True
        )
        answer = self._answer()
        if "error" in answer:
            raise RuntimeError(answer["error"])
        self.peak_memory_bytes = answer["peak_memory_bytes"]
        times: list[list[float]] = answer["token_times_s"]
        if [len(t) for t in times] != [call.max_tokens] * len(call.prompts):
            raise RuntimeError(f"gave {[len(t) for t in times]} tokens instead of {call.max_tokens} each")
        return times

    def stop(self) -> None:
        """End the process."""
        self._pipe.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @property
    def _pipe(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"ended with status {self._process.wait()}; see its log")
        return json.loads(line)


def measure(peers: dict[str, RunningPeer], repetitions: int, seed: int, chosen: list[Work]) -> dict:
    """Return figures[work][peer] = one number per repetition; failures hold the reason instead."""
    figures: dict = {work.name: defaultdict(list) for work in chosen}
    failures: dict = {work.name: {} for work in chosen}
    names = list(peers)
    for repetition in range(-1, repetitions):  # the first round only warms up
        for work in chosen:
            names.append(names.pop(0))
            for name in names:
                if name in failures[work.name]:
                    continue
                rng = random.Random(f"{seed} {repetition} {work.name}")
                try:
                    *before, timed = work.calls(rng)
                    for call in before:
                        peers[name].run(call)
                    figure = work.figure(peers[name].run(timed))
                except RuntimeError as error:
                    failures[work.name][name] = str(error)
                    continue
                if repetition >= 0:
                    figures[work.name][name].append(figure)
        print(f"round {repetition + 1} of {repetitions} done", file=sys.stderr)
    return {"figures": figures, "failures": failures}


def report(result: dict, chosen: list[Work]) -> str:
    """Return a Markdown table: medians, (lowest - highest), and Ratoon against the best peer pair by pair."""
    names = list(result["peers"])
    lines = ["| work | " + " | ".join(names) + " | ratoon : best peer |", "|---" * (len(names) + 2) + "|"]
    for work in chosen:
        figures, failures = result["figures"][work.name], result["failures"][work.name]
        cells = []
        for name in names:
            values = figures.get(name)
            cells.append(f"{spread(values, work)}" if values else f"failed: {failures.get(name, '?')[:40]}")
        lines.append(f"| {work.name}, {work.unit} | " + " | ".join(cells) + f" | {ratio(figures, work)} |")
    for key, unit in (("start_s", "start to ready, s"), ("peak_memory_mb", "peak memory, MB")):
        lines.append(f"| {unit} | " + " | ".join(f"{result['peers'][n][key]:.3g}" for n in names) + " | |")
    return "\n".join(lines)


def spread(values: list[float], work: Work) -> str:
    """Return the median with the range."""
    digits = 0 if work.unit == "tok/s" else 3
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def ratio(figures: dict, work: Work) -> str:
    """Return the median of Ratoon's figure over the best peer's, repetition by repetition."""
    best_of = max if work.higher_is_better else min
    others = {name: values for name, values in figures.items() if name != "ratoon" and values}
    if not others or not figures.get("ratoon"):
        return "-"
    best = best_of(others, key=lambda name: statistics.median(others[name]))
    pairs = [a / b for a, b in zip(figures["ratoon"], others[best], strict=True)]
    return f"{statistics.median(pairs):.2f} ({min(pairs):.2f}-{max(pairs):.2f}) to {best}"


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser("setup", help="install peers")
    setup.add_argument("peers", nargs="*", choices=[[], *REQUIREMENTS], default=[])
    run = commands.add_parser("run", help="compare")
    run.add_argument(
        "--model", type=Path, help="a GGUF file of the Llama family (default: the pulled smollm2)"
    )
    run.add_argument("--only", nargs="*", metavar="PEER", help="names as in the table's head")
    run.add_argument("--work", nargs="*", metavar="NAME", help="run only work whose name starts like this")
    run.add_argument("--repetitions", type=int, default=5)
    run.add_argument("--threads", type=int, default=2)
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--out", type=Path, default=HERE / "result.json")
    for command in (setup, run):
        command.add_argument("--environments", type=Path, default=ENVIRONMENTS)
    args = parser.parse_args()
    return install(args) if args.command == "setup" else compare(args)


def install(args: argparse.Namespace) -> int:
    """Set up the named peers, or all."""
    failed = []
    for environment in args.peers or REQUIREMENTS:
        try:
            set_up(environment, args.environments)
            print(f"{environment}: installed")
        except subprocess.CalledProcessError as error:
            failed.append(environment)
            print(f"{environment}: could not be installed ({error})")
    return 1 if failed else 0


def compare(args: argparse.Namespace) -> int:
    """Start every peer, measure, report."""
    from ratoon.checkpoint.catalog import model_path

    original = args.model or model_path("smollm2")
    converted = args.environments / "models"
    if not converted.exists():
        subprocess.run([sys.executable, str(HERE / "convert.py"), str(original), str(converted)], check=True)
    chosen = [w for w in WORK if not args.work or any(w.name.startswith(name) for name in args.work)]
    running: dict[str, RunningPeer] = {}
    result: dict = {
        "machine": platform.processor() or platform.machine(),
        "threads": args.threads,
        "not_run": {},
    }
    try:
        for spec in PEERS:
            if args.only and spec.name not in args.only:
                continue
            model = original if spec.model is None else converted / spec.model
            log = args.environments / f"{spec.name.replace(' ', '-')}.log"
            try:
                running[spec.name] = RunningPeer(spec, model, args.environments, log, args.threads)
            except RuntimeError as error:
                result["not_run"][spec.name] = str(error)
        result |= measure(running, args.repetitions, args.seed, chosen)
        result["peers"] = {
            name: {
                "description": peer.description,
                "start_s": peer.start_s,
                "peak_memory_mb": peer.peak_memory_bytes / 1e6,
            }
            for name, peer in running.items()
        }
    finally:
        for peer in running.values():
            peer.stop()
    args.out.write_text(json.dumps(result, indent=1))
    print(report(result, chosen))
    for name, reason in result["not_run"].items():
        print(f"\n{name} did not run: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
