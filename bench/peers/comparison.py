"""`Comparison`: what was measured so far, in one file that several runs add to.

A sample is one peer at one piece of work in one round: its figures by row of the table; or `over_s`, the
limit that it exceeded; or an `error`, its own words. Neither is asked again in later rounds. The samples of a
piece of work are entered round by round, so ratios are between figures of the same round.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from ratoon.util.atomic import atomic_file

FORMAT = 1
Sample = dict[str, Any]


class Comparison:
    """Opens `path`, or begins it. Raises `SystemExit` where it is none, or has other `conditions`.

    `peers` holds descriptions by name, `not_run` why a peer did not start when it was tried last.
    """

    def __init__(self, path: Path, conditions: dict[str, Any] | None = None) -> None:
        self._path = path
        content: dict[str, Any] = {"format": FORMAT, "conditions": conditions}
        if path.exists():
            content = json.loads(path.read_text())
        elif conditions is None:
            raise SystemExit(f"There is no {path}.")
        if content.get("format") != FORMAT:
            raise SystemExit(f"{path} is not a comparison that this version reads.")
        if conditions not in (None, content["conditions"]):
            raise SystemExit(f"{path} was measured under other conditions; name another file with --out.")
        self.conditions: dict[str, Any] = content["conditions"]
        self.peers: dict[str, str] = content.get("peers", {})
        self.not_run: dict[str, str] = content.get("not_run", {})
        self.samples: list[Sample] = content.get("samples", [])

    def save(self) -> None:
        """Write the file."""
        content = {
            "format": FORMAT,
            "conditions": self.conditions,
            "peers": self.peers,
            "not_run": self.not_run,
            "samples": self.samples,
        }
        with atomic_file(self._path) as file:
            file.write(json.dumps(content, indent=1).encode())

    def has(self, work: str, round_number: int, peer: str) -> bool:
        """Whether there is a sample, of whatever kind."""
        return any((s["work"], s["round"], s["peer"]) == (work, round_number, peer) for s in self.samples)

    def without_figures(self, work: str, peer: str) -> Sample | None:
        """Return the sample that says why this peer is not asked for this work again, if there is one."""
        return next(
            (s for s in self.samples if (s["work"], s["peer"]) == (work, peer) and "figures" not in s), None
        )

    def expected_s(self, work: str) -> float:
        """Return how long this work took, all peers together, in the longest round so far."""
        by_round: dict[int, float] = defaultdict(float)
        for sample in self.samples:
            if sample["work"] == work:
                by_round[sample["round"]] += sample["wall_s"]
        return max(by_round.values(), default=0.0)

    def figures(self, row: str, peer: str) -> dict[int, float]:
        """Return one peer's figures of a row by round."""
        return {
            s["round"]: s["figures"][row]
            for s in self.samples
            if s["peer"] == peer and row in s.get("figures", {})
        }
