"""Extras say exactly what touches a block, relative to the block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.errors import InvalidParameterError
from ratoon.identity.digest import encode
from ratoon.identity.extra_keys import NO_EXTRAS, ExtraKeys, MediaItem


@st.composite
def media_items(draw: st.DrawFn) -> tuple[MediaItem, ...]:
    """Return items in order, some of them back to back."""
    items: list[MediaItem] = []
    end = 0
    for _ in range(draw(st.integers(0, 4))):
        offset = end + draw(st.integers(0, 9))
        length = draw(st.integers(1, 12))
        items.append(MediaItem(draw(st.sampled_from([b"cat", b"dog"])), offset, length))
        end = offset + length
    return tuple(items)


@given(media_items(), st.integers(1, 8))
def test_a_block_names_each_item_that_has_a_token_in_it_and_no_other(
    media: tuple[MediaItem, ...], block_size: int
) -> None:
    extras = ExtraKeys(media=media)
    for start in range(0, 60, block_size):
        positions = range(start, start + block_size)
        touching = tuple(
            (
                "media",
                item.content,
                item.offset - start,
                min(item.offset + item.length, start + block_size) - start,
            )
            for item in media
            if any(item.offset <= position < item.offset + item.length for position in positions)
        )
        assert extras.encode_block(start, start + block_size) == encode(touching)


@given(media_items(), st.sampled_from([None, "salt"]), st.sampled_from([None, b"lora"]), st.integers(1, 8))
def test_from_uniform_from_on_only_the_adapter_is_left(
    media: tuple[MediaItem, ...], salt: str | None, adapter: bytes | None, block_size: int
) -> None:
    extras = ExtraKeys(adapter=adapter, salt=salt, media=media)
    uniform = ExtraKeys(adapter=adapter).encode_block(0, block_size)
    blocks = range(0, 80, block_size)
    touched = [start for start in blocks if extras.encode_block(start, start + block_size) != uniform]
    assert all(start < extras.uniform_from for start in touched)


def test_without_extras_every_block_is_uniform() -> None:
    assert NO_EXTRAS.uniform_from == 0
    assert NO_EXTRAS.encode_block(0, 16) == encode(())


def test_the_salt_touches_the_first_block_only() -> None:
    salted = ExtraKeys(salt="a")
    assert salted.encode_block(0, 4) != NO_EXTRAS.encode_block(0, 4)
    assert salted.encode_block(4, 8) == NO_EXTRAS.encode_block(4, 8)


def test_the_adapter_touches_every_block() -> None:
    adapted = ExtraKeys(adapter=b"lora")
    assert adapted.encode_block(400, 404) != NO_EXTRAS.encode_block(400, 404)


def test_a_block_sees_where_in_an_item_it_stands() -> None:
    extras = ExtraKeys(media=(MediaItem(b"x", 2, 10),))
    assert len({extras.encode_block(start, start + 4) for start in (0, 4, 8)}) == 3


@pytest.mark.parametrize(
    "faulty",
    [
        {"adapter": b""},
        {"salt": ""},
        {"media": (MediaItem(b"", 0, 1),)},
        {"media": (MediaItem(b"x", -1, 1),)},
        {"media": (MediaItem(b"x", 0, 0),)},
        {"media": (MediaItem(b"x", 4, 2), MediaItem(b"x", 0, 2))},
        {"media": (MediaItem(b"x", 0, 3), MediaItem(b"x", 2, 2))},
    ],
)
def test_extras_that_mean_nothing_are_refused(faulty: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        ExtraKeys(**faulty)  # type: ignore[arg-type]
