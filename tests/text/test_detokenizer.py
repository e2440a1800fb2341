import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.text.detokenizer import Detokenizer
from ratoon.text.tokenizer import Tokenizer


def pieces(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special)
    return [*map(detokenizer.feed, ids), detokenizer.flush()]


@given(text=st.text())
def test_pieces_are_whole_characters_and_make_up_the_text(byte_level: Tokenizer, text: str) -> None:
    shown = pieces(byte_level, byte_level.encode(text, add_special=False, parse_special=False))
    assert "".join(shown) == text
    assert shown[-1] == "", "nothing is left at the end of a whole text"


@given(data=st.binary())
def test_any_bytes_make_the_text_that_they_make_at_once(byte_level: Tokenizer, data: bytes) -> None:
    spelled = {byte_level.token_bytes(number): number for number in range(byte_level.vocab_size)}
    ids = [spelled[bytes([byte])] for byte in data]
    assert "".join(pieces(byte_level, ids)) == data.decode("utf-8", "replace") == byte_level.decode(ids)


def test_a_character_comes_with_the_token_that_ends_it(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("x😀y", add_special=False, parse_special=False)
    assert pieces(byte_level, ids) == ["x", "", "", "", "😀", "y", ""]


def test_half_a_character_at_the_end_is_replaced(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("😀", add_special=False, parse_special=False)
    assert pieces(byte_level, ids[:3]) == ["", "", "", "\ufffd"]


def test_a_continuation_keeps_the_space_it_begins_with(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("ab ab", add_special=False, parse_special=False)
    assert sentencepiece.decode(ids) == "ab ab"
    assert pieces(sentencepiece, ids) == [" ab", " ab", ""]


def test_bytes_of_fallback_tokens_become_characters(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("é", add_special=False, parse_special=False)
    assert pieces(sentencepiece, ids) == [" ", "", "é", ""]


@pytest.mark.parametrize(("skip_special", "expected"), [(True, "ab"), (False, "a<|x|>b")])
def test_control_tokens_are_shown_only_where_asked_for(
    byte_level: Tokenizer, skip_special: bool, expected: str
) -> None:
    ids = byte_level.encode("a<|x|>b", add_special=False, parse_special=True)
    assert "".join(pieces(byte_level, ids, skip_special=skip_special)) == expected


@given(cut=st.integers(0, 200), text=st.text(alphabet="aé你😀 \n", max_size=60))
def test_a_real_vocabulary_streams_as_it_decodes(smollm2: Tokenizer, cut: int, text: str) -> None:
    ids = smollm2.encode(text, add_special=False, parse_special=False)[:cut]
    assert "".join(pieces(smollm2, ids)) == smollm2.decode(ids)
