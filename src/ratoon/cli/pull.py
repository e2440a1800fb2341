"""`ratoon pull [MODEL]`: downloads a model, or lists the ones known by name."""

import argparse
import sys

from ratoon.checkpoint.model_catalog import CATALOG, pulled_folder
from ratoon.checkpoint.pull import pull
from ratoon.util.progress import TerminalProgress
from ratoon.util.sizes import format_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the name."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a known name, or OWNER/NAME on Hugging Face; without it, the known models are listed",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print where the model lies, as one line on stdout."""
    if arguments.model is None:
        list_known()
        return 0
    if (entry := CATALOG.get(arguments.model)) is not None and entry.terms:
        print(f"{entry.name} is under the {entry.licence}: {entry.terms}", file=sys.stderr)
    with TerminalProgress() as progress:
        pulled = pull(arguments.model, progress)
    if pulled.was_there:
        print(f"{arguments.model} was pulled before.", file=sys.stderr)
    print(pulled.path)
    return 0


def list_known() -> None:
    """Print one line per known model."""
    for entry in CATALOG.values():
        state = "pulled" if pulled_folder(entry.name).is_dir() else format_bytes(entry.download_bytes)
        print(f"{entry.name:<20}{state:<11}{entry.summary} ({entry.licence})")
