import pytest

from ratoon.errors import TextError
from ratoon.text.utf8 import decode_utf8


def test_text_is_decoded_as_it_is() -> None:
    assert decode_utf8("grün\r\n".encode(), "input") == "grün\r\n"


def test_the_first_wrong_byte_is_named() -> None:
    with pytest.raises(TextError) as caught:
        decode_utf8(b"abc\xff", "Standard input")
    assert caught.value.message == "Standard input is not UTF-8: byte 3 is 0xff."
