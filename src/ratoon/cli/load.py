"""Loading the model that a command line names."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from ratoon.cli.engine_options import engine_settings
from ratoon.engine.llm import LLM
from ratoon.util.progress import TerminalProgress


def load_llm(
    arguments: argparse.Namespace,
    adapters: Mapping[str, Path] | None = None,
    chat_template: Path | None = None,
) -> LLM:
    """Load it, with a bar on a terminal. Says so where the slow ops were chosen for want of others."""
    with TerminalProgress() as progress:
        llm = LLM(
            arguments.model,
            adapters=adapters,
            chat_template=chat_template,
            progress=progress,
            **engine_settings(arguments),
        )
    if arguments.ops == "auto" and not llm.model.ops_name.startswith("native"):
        print("note: there are no native ops here; NumPy computes, slowly.", file=sys.stderr)
    return llm
