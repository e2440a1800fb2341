"""The canonical encoding loses nothing, so that different values never have the same digest."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ratoon.identity.digest
from ratoon.errors import InvalidParameterError
from ratoon.identity.digest import DIGEST_SIZE, Encodable, digest, digest_chain, encode

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(max_size=40)
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=12)


def decode(data: bytes) -> tuple[Encodable, bytes]:
    """Read one value back; return it with the bytes behind it."""
    letter, (length,) = data[:1], struct.unpack_from("<I", data, 1)
    rest = data[5:]
    if letter == b"t":
        items = []
        for _ in range(length):
            item, rest = decode(rest)
            items.append(item)
        return tuple(items), rest
    payload, rest = rest[:length], rest[length:]
    match letter:
        case b"n":
            return None, rest
        case b"?":
            return payload == b"\x01", rest
        case b"i":
            return int(payload), rest
        case b"f":
            return float(struct.unpack("<d", payload)[0]), rest
        case b"s":
            return payload.decode("utf-8", "surrogatepass"), rest
    assert letter == b"b"
    return payload, rest


@given(values)
def test_an_encoded_value_can_be_read_back_with_its_types(value: Encodable) -> None:
    decoded, rest = decode(encode(value))
    assert rest == b""
    assert repr(decoded) == repr(value)


def test_the_encoding_is_pinned() -> None:
    value = (None, True, 1, 1.0, "ü", b"\x00", ())
    expected = (
        b"t\x07\x00\x00\x00"
        b"n\x00\x00\x00\x00"
        b"?\x01\x00\x00\x00\x01"
        b"i\x01\x00\x00\x001"
        b"f\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\xf0?"
        b"s\x02\x00\x00\x00\xc3\xbc"
        b"b\x01\x00\x00\x00\x00"
        b"t\x00\x00\x00\x00"
    )
    assert encode(value) == expected


def test_true_one_and_one_point_zero_are_different_values() -> None:
    assert len({encode(True), encode(1), encode(1.0), encode("1"), encode(b"1")}) == 5


def test_a_lone_surrogate_can_be_encoded() -> None:
    assert encode("\ud800") != encode("\ud801")


@pytest.mark.parametrize("value", [[1], {1: 2}, object()])
def test_other_types_are_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidParameterError, match=type(value).__name__):
        encode((value,))  # type: ignore[arg-type]


def test_a_digest_is_sha256() -> None:
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert digest(b"abc").hex() == expected
    assert len(digest(b"")) == DIGEST_SIZE


@pytest.mark.parametrize("hashes_blocks", [True, False], ids=["as it runs here", "by hashlib"])
@given(
    before=st.binary(max_size=70),
    blocks=st.lists(st.binary(min_size=9, max_size=9)),
    after=st.binary(max_size=70),
)
def test_each_digest_of_a_chain_is_over_the_one_before_it(
    hashes_blocks: bool, before: bytes, blocks: list[bytes], after: bytes
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not hashes_blocks:
            patch.setattr(ratoon.identity.digest, "_HASHES_BLOCKS", False)
        found = digest_chain(bytes(32), before, b"".join(blocks), 9, after)
    assert len(found) == len(blocks)
    for parent, block, own in zip([bytes(32), *found], blocks, found, strict=False):
        assert own == digest(parent + before + block + after)


def test_a_chain_is_right_whatever_is_left_of_the_last_64_bytes() -> None:
    for length in range(130):
        after = bytes(length)
        assert digest_chain(bytes(32), b"", b"block", 5, after) == [digest(bytes(32) + b"block" + after)]
