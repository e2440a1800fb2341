import pytest

from ratoon.errors import TextError
from ratoon.text.token_bytes import TokenBytes

BYTE_LEVEL = {"type": "ByteLevel"}
REPLACE = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
SENTENCEPIECE = {"type": "Sequence", "decoders": [REPLACE, {"type": "ByteFallback"}, {"type": "Fuse"}]}


def test_byte_level_names_stand_for_bytes() -> None:
    spelled = TokenBytes(BYTE_LEVEL, {})
    assert spelled.of(0, "ĠaÃ¼Ċ") == " aü\n".encode()
    assert spelled.of(0, "Ã") == b"\xc3"


def test_sentencepiece_names_stand_for_text_or_one_byte() -> None:
    spelled = TokenBytes(SENTENCEPIECE, {})
    assert spelled.of(0, "\u2581a\u2581") == b" a "
    assert spelled.of(0, "<0xC3>") == b"\xc3"
    assert spelled.of(0, "<0xc3>") == b"<0xc3>"


@pytest.mark.parametrize("decoder", [BYTE_LEVEL, SENTENCEPIECE])
def test_an_added_token_stands_for_its_own_text(decoder: dict[str, object]) -> None:
    assert TokenBytes(decoder, {7: "Ġ\u2581"}).of(7, "Ġ\u2581") == "Ġ\u2581".encode()


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        (BYTE_LEVEL, False),
        (SENTENCEPIECE, False),
        ({"type": "Sequence", "decoders": [REPLACE, {"type": "Strip", "content": " ", "start": 1}]}, True),
        ({"type": "Metaspace", "prepend_scheme": "always"}, True),
        ({"type": "Metaspace", "prepend_scheme": "never"}, False),
    ],
)
def test_whether_a_text_begins_with_a_space_of_its_own(decoder: dict[str, object], expected: bool) -> None:
    assert TokenBytes(decoder, {}).begins_with_space is expected


@pytest.mark.parametrize("decoder", [None, {"type": "WordPiece"}, {"type": "Sequence", "decoders": []}])
def test_an_unknown_way_of_decoding_is_refused(decoder: dict[str, object] | None) -> None:
    with pytest.raises(TextError):
        TokenBytes(decoder, {})
