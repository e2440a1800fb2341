"""`ratoon`: finds the command, runs it, and turns what goes wrong into one sentence and an exit status.

A command is a module of this package named like the command, with two functions: `add_arguments(parser)` and
`run(arguments) -> int`, the exit status. Only the chosen command's module is imported, so `ratoon --help`
starts at once and a command may import at its top whatever it needs.

Data goes to stdout, everything said to the user to stderr. Exit status: 0 success, 1 failure, 2 usage,
130 Ctrl-C, 141 when the reader of stdout went away (what a shell reports for SIGPIPE).
"""

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import ratoon
from ratoon.errors import RatoonError, UsageError

COMMANDS = {
    "pull": "download a model, or list the models known by name",
    "demo": "ask two questions about one document and watch the second skip its prefill",
    "generate": "continue a prompt",
    "chat": "talk with a model",
    "serve": "answer OpenAI's API over HTTP",
    "inspect": "show a model's shape and what its KV cache costs",
    "perplexity": "score a text under a model",
    "lint": "say what in logged prompts keeps them from sharing a cached prefix",
    "cache": "run a script of cache operations, without a model",
    "lab": "measure a server and report what prefix caching gains",
}
"""Every command with the line that `ratoon --help` shows."""

INTERRUPTED = 130
BROKEN_PIPE = 141


class Command(Protocol):
    """What a command's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do the work; return the exit status."""
        ...


class Parser(argparse.ArgumentParser):
    """An argument parser that reports misuse as every other error is reported."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` where argparse would print its usage and exit."""
        sentence = message[0].upper() + message[1:].rstrip(".") + "."
        raise UsageError(sentence, hint=f"`{self.prog} --help` lists what there is.")


def load_command(name: str) -> Command:
    """Import the module of a command in `COMMANDS`."""
    return cast(Command, importlib.import_module(f"ratoon.cli.{name}"))


def command_parser(name: str) -> Parser:
    """Return the parser of a command's own arguments."""
    summary = COMMANDS[name]
    parser = Parser(
        prog=f"ratoon {name}", description=f"{summary[0].upper()}{summary[1:]}.", allow_abbrev=False
    )
    load_command(name).add_arguments(parser)
    return parser


def main_parser() -> Parser:
    """Return the parser of what stands before a command."""
    parser = Parser(
        prog="ratoon",
        description="Language models on ordinary machines, with every prompt prefix computed once.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ratoon {ratoon.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser


def run(argv: Sequence[str]) -> int:
    """Parse and run one command line. Raises `RatoonError` for whatever the user can mend."""
    if argv and argv[0] in COMMANDS:
        return load_command(argv[0]).run(command_parser(argv[0]).parse_args(argv[1:]))
    parser = main_parser()
    parser.parse_args(argv)
    parser.print_help()
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `ratoon` script."""
    _open_missing_streams()
    try:
        try:
            return run(sys.argv[1:] if argv is None else argv)
        finally:
            sys.stdout.flush()  # here, where a full disk or a reader that went away is still noticed
    except RatoonError as error:
        report(error)
        return error.exit_status
    except KeyboardInterrupt:
        # From here on we only leave; a second Ctrl-C must not turn that into a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # What is still buffered can go nowhere; without this the interpreter would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except MemoryError:
        report(RatoonError("There is not enough memory for this."))
        return RatoonError.exit_status
    except OSError as error:
        report(RatoonError(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}."))
        return RatoonError.exit_status


def report(error: RatoonError) -> None:
    """Print the sentence and the hint, each on one line, whatever names of files and the like hold."""
    print(f"error: {_printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {_printable(error.hint)}", file=sys.stderr)


def _printable(text: str) -> str:
    """Return the text with what a terminal would obey instead of show written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _open_missing_streams() -> None:
    """Let standard streams that we found closed be empty, or swallow all; Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Left open, as Python's own are.
            nothing = os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8", closefd=False)
            setattr(sys, name, nothing)
