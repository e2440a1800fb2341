"""`--adapter NAME=PATH`: which LoRA adapters a command loads."""

import argparse
from pathlib import Path

from ratoon.cli.engine_options import argument
from ratoon.errors import InvalidParameterError, UsageError


def add_adapter_option(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Declare the option, which may be given several times."""
    parser.add_argument(
        "--adapter", action="append", default=[], type=argument(_parse), metavar="NAME=PATH", help=help_text
    )


def adapters(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the folders by name. Raises `UsageError` for a name that is given twice."""
    named: dict[str, Path] = {}
    for name, path in arguments.adapter:
        if name in named:
            raise UsageError(f"Two adapters are called {name!r}.")
        named[name] = path
    return named


def only_adapter(arguments: argparse.Namespace) -> str | None:
    """Return the name of the one adapter that was given, if one was. Raises `UsageError` for several."""
    names = list(adapters(arguments))
    if len(names) > 1:
        raise UsageError("An answer goes through one adapter, and several were given.")
    return names[0] if names else None


def _parse(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not path:
        raise InvalidParameterError(f"{text!r} is not NAME=PATH.")
    return name, Path(path)
