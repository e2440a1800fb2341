"""Bytes from outside that should be text."""

from ratoon.errors import TextError


def decode_utf8(data: bytes, source: str) -> str:
    """Return the text. Raises `TextError` naming the source and the first wrong byte."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextError(
            f"{source} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}.",
            hint="Convert it first, for example with `iconv -t utf-8`.",
        ) from None
