"""Text that a command was given: as an argument, in a file, or on stdin."""

import sys
from pathlib import Path

from ratoon.errors import TextError
from ratoon.text.utf8 import decode_utf8

STDIN = "-"


def read_prompt(argument: str) -> str:
    """Return the argument itself, or all of stdin for `-`. Raises `TextError` for bytes that are no UTF-8."""
    if argument == STDIN:
        return decode_utf8(sys.stdin.buffer.read(), "Standard input")
    # Bytes of an argument that are no UTF-8 arrive as lone surrogates.
    return decode_utf8(argument.encode(errors="surrogateescape"), "The prompt")


def read_file(name: str) -> str:
    """Return a file's text, or stdin's for `-`. Raises `TextError` where it cannot be read."""
    if name == STDIN:
        return read_prompt(STDIN)
    try:
        return decode_utf8(Path(name).read_bytes(), name)
    except OSError as error:
        raise TextError(f"{name} cannot be read: {error.strerror}.") from error
