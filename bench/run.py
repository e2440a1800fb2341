"""Ratoon's own benchmarks: kernels and cache by themselves, then the engine on the work of `bench/peers`.

    python bench/run.py [--quick] [--out FILE]
    python bench/run.py --compare A.json B.json

A result is a JSON file with every sample, the machine and the versions. The comparison refuses results of
unlike machines or settings, and gives B / A with its 95 % interval.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from micro import CASES
from result import Result

from ratoon.device.ops.native import NativeOps
from ratoon.errors import RatoonError
from ratoon.lab.statistics import ratio_of_medians
from ratoon.util.progress import TerminalProgress

HERE = Path(__file__).resolve().parent
MUST_MATCH = ("processor", "cores", "memory")


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples, in about a minute")
    parser.add_argument("--model", default="smollm2", help="for the engine (default: smollm2)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "result.json")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="two results")
    args = parser.parse_args()
    if args.compare:
        print(comparison(*map(Result.read, args.compare)))
        return 0
    result = Result({"quick": args.quick, "model": args.model, "threads": args.threads})
    with TerminalProgress() as progress:
        ops = NativeOps(args.threads)
        for done, case in enumerate(CASES):
            progress("small benchmarks", done, len(CASES))
            sample = case.make(ops)
            sample()  # warms up
            for _ in range(7 if args.quick else 15):
                result.add(sample())
    run_engine(result, rounds=3 if args.quick else 7)
    result.write(args.out)
    print(result.table())
    print(f"\nResult: {args.out}", file=sys.stderr)
    return 0


def run_engine(result: Result, rounds: int) -> None:
    """Add the figures of the whole engine: the comparison with the peers, without the peers."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, str(HERE / "peers/run.py"), "run", "--only", "ratoon", "--out", str(out)]
        command += ["--rounds", str(rounds), "--model", result.settings["model"]]
        command += ["--threads", str(result.settings["threads"])]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for sample in json.loads(out.read_text())["samples"]:
            if "figures" not in sample:
                raise SystemExit(f"{sample['work']} failed: {sample}")
            result.add(sample["figures"])


def comparison(a: Result, b: Result) -> str:
    """Return B / A of every figure that both have. Raises `SystemExit` where they are unlike."""
    unlike = [
        f"{name}: {left} and {right}"
        for name, left, right in (
            *((name, a.machine[name], b.machine[name]) for name in MUST_MATCH),
            *((name, a.settings.get(name), b.settings.get(name)) for name in a.settings | b.settings),
        )
        if left != right
    ]
    if unlike:
        raise SystemExit(f"These results are not alike: {'; '.join(unlike)}.")
    lines = ["| figure | A | B | B / A | 95 % interval | |", "|---|---|---|---|---|---|"]
    for name in a.samples:
        if name not in b.samples:
            continue
        before, after = a.median(name), b.median(name)
        ratio = ratio_of_medians(a.samples[name], b.samples[name])
        interval = "too few samples" if ratio.low is None else f"{ratio.low:.3f} - {ratio.high:.3f}"
        better = (ratio.value > 1) == name.endswith("/s")
        verdict = ("better" if better else "worse") if ratio.excludes(1) else ""
        lines.append(f"| {name} | {before:.4g} | {after:.4g} | {ratio.value:.3f} | {interval} | {verdict} |")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RatoonError as error:
        sys.exit(str(error))
