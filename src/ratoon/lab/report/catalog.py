"""The reports by the name of their experiment."""

from collections.abc import Callable

from ratoon.lab.report import counterexamples, load, pair, sweep
from ratoon.lab.report.report import Report
from ratoon.lab.run_store import RunStore

REPORTS: dict[str, Callable[[RunStore], Report]] = {
    "pair": pair.report,
    "sweep": sweep.report,
    "counterexamples": counterexamples.report,
    "burst": load.report,
    "replay": load.report,
}
"""Each turns a run's samples, whole or interrupted, into a report."""
