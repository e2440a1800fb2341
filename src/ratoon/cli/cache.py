"""`ratoon cache FILE.json`: a script of cache operations, without a model.

Prints one JSON line per operation, or with `--table` a table for people. What was printed before an
impossible operation stays true.
"""

import argparse
import json
from collections.abc import Iterable

from ratoon.cache.script.reader import read_script
from ratoon.cache.script.session import Line, ScriptSession
from ratoon.cli.prompt_text import read_file
from ratoon.errors import CacheScriptError, TextError

_HEADINGS = ("#", "op", "request", "outcome", "block tables", "events")
_STATE = ("free_queue", "ref_counts", "keyed_blocks", "num_keys", "stats")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the script and the form of the output."""
    parser.add_argument("script", metavar="FILE", help="the script, as JSON; - reads it from stdin")
    parser.add_argument("--table", action="store_true", help="print a table for people instead of JSON lines")


def run(arguments: argparse.Namespace) -> int:
    """Carry the script out. Raises `CacheScriptError` where it is malformed or asks for the impossible."""
    lines = ScriptSession(read_script(_source(arguments.script))).run()
    if arguments.table:
        _print_table(lines)
    else:
        for line in lines:
            print(json.dumps(line))
    return 0


def _source(name: str) -> str:
    try:
        return read_file(name)
    except TextError as error:
        raise CacheScriptError(error.message, hint=error.hint) from None


def _print_table(lines: Iterable[Line]) -> None:
    """Print what was done, aligned, also when the script breaks off; a state stands below its row."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    states: dict[int, Line] = {}
    try:
        for number, line in enumerate(lines, 1):
            states[number] = {name: line.pop(name) for name in _STATE if name in line}
            rows.append((str(number), *_cells(line)))
    finally:
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for number, row in enumerate(rows):
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
            for name, value in states.get(number, {}).items():
                print(f"{'':{widths[0]}}    {_words(name)}: {_text(value)}")


def _cells(line: Line) -> tuple[str, str, str, str, str]:
    """Return operation, request, outcome, block tables and events; the outcome is whatever else there is."""
    operation, request = str(line.pop("op")), str(line.pop("request", ""))
    tables, events = line.pop("block_tables", ()), line.pop("events")
    assert isinstance(tables, tuple)
    assert isinstance(events, list)
    outcome = ", ".join(f"{_words(name)} {_text(value)}" for name, value in line.items())
    return operation, request, outcome, " | ".join(map(_text, tables)), ", ".join(map(_event, events))


def _words(name: str) -> str:
    return name.removeprefix("num_").replace("_", " ")


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return " ".join(map(str, value)) or "-"
        case dict():
            return (
                ", ".join(f"{_words(str(name))}: {number}" for name, number in value.items() if number) or "-"
            )
    return str(value)


def _event(entry: Line) -> str:
    """Return an event in a few characters; eight digits tell hashes apart by eye."""
    if entry["event"] == "reset":
        return "reset"
    return f"{entry['event']} {entry['block_id']} (group {entry['group']}, {str(entry['block_hash'])[:8]})"
