"""Parts are laid end to end, and what stands at a position is in the key of its block."""

import struct
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.engine.prompt_parts import Media, PromptTokens, join_parts, read_part
from ratoon.errors import InvalidParameterError
from ratoon.identity.extra_keys import ExtraKeys
from ratoon.identity.hash_chain import HashChain
from ratoon.request.input_rows import InputRows
from ratoon.text.tokenizer import Tokenizer

WIDTH = 2
BLOCK_SIZE = 4
ROWS = np.arange(24, dtype=np.float32).reshape(12, WIDTH)
OTHER = ROWS + 100

Input = int | tuple[str, bytes]


class LetterTokenizer:
    """Each letter is a token; what begins a text is 1."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert parse_special, "names of control tokens become control tokens"
        return [1] * add_special + list(text.encode())


def joined(*parts: object) -> PromptTokens:
    return join_parts([read_part(part, WIDTH) for part in parts], cast(Tokenizer, LetterTokenizer()))


def hashes(*parts: object) -> list[bytes]:
    tokens = joined(*parts)
    return HashChain(bytes(32), BLOCK_SIZE, ExtraKeys(media=tokens.media), tokens.ids).block_hashes


def inputs(tokens: PromptTokens) -> list[Input]:
    """What the model is given at each position."""
    found: list[Input] = list(tokens.ids)
    for offset, rows in tokens.rows:
        for i in range(rows.num_rows):
            found[offset + i] = (rows.dtype, rows.cut(i, i + 1))
    return found


def test_parts_are_laid_end_to_end_and_only_a_first_text_gets_a_beginning() -> None:
    tokens = joined("ab", ROWS[:2], [7, 8], ROWS[2:3], "c")
    assert tokens.ids == [1, *b"ab", 0, 0, 7, 8, 0, *b"c"]
    assert [(offset, rows.num_rows) for offset, rows in tokens.rows] == [(3, 2), (7, 1)]
    assert inputs(tokens)[3] == ("F32", struct.pack("<2f", 0, 1))
    assert inputs(tokens)[7] == ("F32", struct.pack("<2f", 4, 5))
    assert joined(ROWS, "a").ids == [0] * 12 + [*b"a"]
    assert joined([5], "a").ids == [5, *b"a"]


def test_a_prompt_of_one_text_is_known_by_it() -> None:
    assert joined("ab").text == "ab"
    assert joined("ab", [1]).text is None
    assert joined([1]).text is None
    assert joined().ids == []


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (ROWS, "F32"),
        (ROWS.astype(np.float16), "F16"),
        (np.asfortranarray(ROWS), "F32"),
        (np.repeat(ROWS, 2, axis=1)[:, ::2], "F32"),
        (ROWS.data, "F32"),
    ],
)
def test_any_array_of_float32_or_float16_is_taken_row_by_row(array: Any, dtype: str) -> None:
    rows = read_part(array, WIDTH)
    assert isinstance(rows, InputRows)
    assert (rows.dtype, rows.num_rows) == (dtype, 12)
    assert rows.data == np.ascontiguousarray(array).tobytes()


def test_media_bring_rows_and_a_digest_of_their_own() -> None:
    rows = read_part(Media(b"cat.png", ROWS), WIDTH)
    assert isinstance(rows, InputRows)
    assert rows.content == b"cat.png"
    assert rows.data == ROWS.tobytes()


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (ROWS.astype(np.float64), "stored as `d`"),
        (ROWS.astype(np.int32), "stored as `i`"),
        (ROWS.astype(">f4"), "stored as `>f`"),
        (np.full((1, WIDTH), np.nan, np.float32), "NaN or infinity"),
        (np.full((1, WIDTH), -np.inf, np.float16), "NaN or infinity"),
        (ROWS[:0], r"shape \[0, 2\]"),
        (ROWS[0], r"shape \[2\]"),
        (ROWS.reshape(2, 6, 2), r"shape \[2, 6, 2\]"),
        (ROWS.reshape(8, 3), r"takes \[n, 2\]"),
        (np.float32(1), "shape"),
        (b"text", "stored as `B`"),
        (None, "not a NoneType"),
        (7, "not a int"),
        ({"prompt": "text"}, "not a dict"),
        ([1, "two"], "whole numbers"),
        ([1.5], "whole numbers"),
        ([[1.0, 2.0]], "whole numbers"),
        (Media(b"", ROWS), "content of Media"),
        (Media("cat", ROWS), "content of Media"),  # type: ignore[arg-type]
        (Media(b"cat", "rows"), "not a str"),
        (Media(b"cat", ROWS[:0]), "shape"),
    ],
)
def test_what_is_no_part_is_refused(part: object, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        read_part(part, WIDTH)


PAIRS: dict[str, tuple[Sequence[object], Sequence[object]]] = {
    "another value": ([[7], ROWS], [[7], np.where(ROWS == 3, 4, ROWS).astype(np.float32)]),
    "another dtype": ([ROWS], [ROWS.astype(np.float16)]),
    "zero and minus zero": ([ROWS * 0], [ROWS * np.float32(-0.0)]),
    "rows and their tokens' ids": ([ROWS], [[0] * 12]),
    "two parts swapped": ([ROWS, OTHER], [OTHER, ROWS]),
    "shifted by one position": ([[0], ROWS], [ROWS, [0]]),
    "shifted by a block": ([[0] * BLOCK_SIZE, ROWS], [ROWS, [0] * BLOCK_SIZE]),
    "cut in two": ([ROWS], [ROWS[:6], ROWS[6:]]),
    "cut at another boundary": ([ROWS[:4], ROWS[4:]], [ROWS[:8], ROWS[8:]]),
    "cut one row later": ([ROWS[:5], ROWS[5:]], [ROWS[:6], ROWS[6:]]),
    "a longer part": ([ROWS[:8]], [ROWS]),
    "media and rows": ([Media(b"cat", ROWS)], [ROWS]),
    "another medium with equal rows": ([Media(b"cat", ROWS)], [Media(b"dog", ROWS)]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_prompts_of_other_parts_share_no_block_though_their_tokens_are_equal(name: str) -> None:
    one, other = (hashes(*parts) for parts in PAIRS[name])
    assert one
    assert not set(one) & set(other)


def test_the_same_parts_have_the_same_keys() -> None:
    for one, other in PAIRS.values():
        assert hashes(*one) == hashes(*one)
        assert hashes(*other, [1, 2, 3, 4])[: len(hashes(*other))] == hashes(*other)


def test_what_comes_after_a_block_does_not_part_it() -> None:
    plain = hashes([1, 2, 3, 4, 5, 6, 7, 8])
    with_rows = hashes([1, 2, 3, 4], ROWS, [9])
    assert plain[0] == with_rows[0]
    assert with_rows[:4] == hashes([1, 2, 3, 4], ROWS, OTHER)[:4]


parts = st.lists(
    st.one_of(
        st.lists(st.integers(0, 1), min_size=1, max_size=5),
        st.builds(
            lambda values, dtype: np.array(values, dtype).repeat(WIDTH).reshape(-1, WIDTH),
            st.lists(st.sampled_from([0.0, -0.0, 1.0]), min_size=1, max_size=5),
            st.sampled_from([np.float32, np.float16]),
        ),
    ),
    max_size=5,
)


@given(parts, parts)
def test_equal_hashes_mean_equal_inputs(one: list[object], other: list[object]) -> None:
    pairs = zip(hashes(*one), hashes(*other), strict=False)
    num_equal = sum(a == b for a, b in pairs)
    end = num_equal * BLOCK_SIZE
    assert inputs(joined(*one))[:end] == inputs(joined(*other))[:end]
