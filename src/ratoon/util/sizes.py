"""Byte sizes as people write them: `512MiB`, `4GB`, `1.5 GiB`, `1048576`."""

import re

from ratoon.errors import InvalidParameterError

_UNITS = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip


def parse_bytes(text: str) -> int:
    """Return the number of bytes. Raises `InvalidParameterError` for anything but a size above zero."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip(), re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise InvalidParameterError(
            f"{text!r} is not a size.", hint="Write a number of bytes, or one with a unit: 512MiB, 4GB."
        )
    whole, _, fraction = match[1].partition(".")
    size: int = int(whole + fraction) * unit // 10 ** len(fraction)  # in integers: exact at any size
    if size <= 0:
        raise InvalidParameterError(f"A size must be above zero, not {text!r}.")
    return size


def format_bytes(size: int) -> str:
    """Return a size in the largest binary unit that it fills: 536870912 -> `512 MiB`, 1600 -> `1.6 KiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        scale = _UNITS[unit.upper()]
        if size >= scale:
            return f"{size / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"
