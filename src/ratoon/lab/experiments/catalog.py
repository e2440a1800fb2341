"""The experiments by name."""

from ratoon.lab.experiments.burst import Burst
from ratoon.lab.experiments.counterexamples import Counterexamples
from ratoon.lab.experiments.pair import Pair
from ratoon.lab.experiments.replay import Replay
from ratoon.lab.experiments.sweep import Sweep

EXPERIMENTS: dict[str, type] = {
    "pair": Pair,
    "sweep": Sweep,
    "counterexamples": Counterexamples,
    "burst": Burst,
    "replay": Replay,
}
"""Each with the settings as its fields and a `measure`."""
