"""Hashes follow from root, tokens and extras, whatever the pieces in which the tokens came."""

import struct
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratoon.errors import InvalidParameterError
from ratoon.identity.extra_keys import ExtraKeys, MediaItem
from ratoon.identity.hash_chain import HashChain

ROOT = bytes(range(32))
EXTRAS = [
    ExtraKeys(),
    ExtraKeys(salt="a"),
    ExtraKeys(salt="b"),
    ExtraKeys(adapter=b"lora"),
    ExtraKeys(adapter=b"other"),
    ExtraKeys(media=(MediaItem(b"cat", 1, 3),)),
    ExtraKeys(media=(MediaItem(b"cat", 2, 3),)),
    ExtraKeys(media=(MediaItem(b"dog", 1, 3),)),
    ExtraKeys(media=(MediaItem(b"cat", 1, 2),)),
    ExtraKeys(media=(MediaItem(b"cat", 1, 1), MediaItem(b"cat", 2, 2))),
]

token_lists = st.lists(st.integers(0, 2**32 - 1), max_size=40)


@given(token_lists, st.integers(1, 7), st.sampled_from(EXTRAS))
def test_each_hash_is_that_of_parent_tokens_and_extras(
    tokens: list[int], block_size: int, extras: ExtraKeys
) -> None:
    chain = HashChain(ROOT, block_size, extras, tokens)
    parent = ROOT
    for i in range(len(tokens) // block_size):
        block = tokens[i * block_size : (i + 1) * block_size]
        record = b"".join(struct.pack("<I", token) for token in block)
        data = parent + struct.pack("<I", block_size) + record
        parent = sha256(data + extras.encode_block(i * block_size, (i + 1) * block_size)).digest()
        assert chain.block_hashes[i] == parent
        assert chain.block_tokens[i] == record
    assert len(chain.block_hashes) == len(chain.block_tokens) == len(tokens) // block_size
    assert list(chain.tokens) == tokens


@given(token_lists, st.data(), st.integers(1, 5), st.sampled_from(EXTRAS))
def test_tokens_may_come_in_any_pieces(
    tokens: list[int], data: st.DataObject, block_size: int, extras: ExtraKeys
) -> None:
    whole = HashChain(ROOT, block_size, extras, tokens)
    pieces = HashChain(ROOT, block_size, extras)
    start = 0
    while start < len(tokens):
        end = data.draw(st.integers(start, len(tokens)), label="end") + 1
        pieces.append(tokens[start:end])
        start = end
    assert pieces.block_hashes == whole.block_hashes
    assert pieces.block_tokens == whole.block_tokens
    assert pieces.tokens == whole.tokens


@given(st.lists(st.integers(0, 99), min_size=12, max_size=12), st.integers(0, 11))
def test_a_changed_token_changes_its_block_and_all_after_it_and_none_before(
    tokens: list[int], place: int
) -> None:
    changed = tokens.copy()
    changed[place] += 100
    one, other = HashChain(ROOT, 3, tokens=tokens), HashChain(ROOT, 3, tokens=changed)
    differs = [a != b for a, b in zip(one.block_hashes, other.block_hashes, strict=True)]
    assert differs == [i >= place // 3 for i in range(4)]


def test_chains_that_differ_in_one_extra_share_no_touched_block() -> None:
    tokens = range(12)
    chains = [HashChain(ROOT, 4, extras, tokens).block_hashes for extras in EXTRAS]
    for i in range(3):
        assert len({hashes[i] for hashes in chains}) == len(EXTRAS)


def test_media_behind_a_block_does_not_part_it() -> None:
    plain = HashChain(ROOT, 4, tokens=range(12)).block_hashes
    media = HashChain(ROOT, 4, ExtraKeys(media=(MediaItem(b"cat", 5, 2),)), range(12)).block_hashes
    assert media[0] == plain[0]
    assert media[1] != plain[1]
    assert media[2] != plain[2]


def test_how_long_an_item_goes_on_after_a_block_does_not_part_it() -> None:
    short, long = (
        HashChain(ROOT, 4, ExtraKeys(media=(MediaItem(b"cat", 1, length),)), range(12)).block_hashes
        for length in (4, 7)
    )
    assert short[0] == long[0]
    assert short[1] != long[1]


def test_two_items_swapped_share_nothing_from_the_first_on() -> None:
    cat_dog = ExtraKeys(media=(MediaItem(b"cat", 0, 2), MediaItem(b"dog", 2, 2)))
    dog_cat = ExtraKeys(media=(MediaItem(b"dog", 0, 2), MediaItem(b"cat", 2, 2)))
    one, other = HashChain(ROOT, 4, cat_dog, range(8)), HashChain(ROOT, 4, dog_cat, range(8))
    assert not set(one.block_hashes) & set(other.block_hashes)


def test_another_root_or_block_size_shares_nothing() -> None:
    tokens = [7] * 24
    chains = [
        HashChain(ROOT, 4, tokens=tokens),
        HashChain(b"\xff" * 32, 4, tokens=tokens),
        HashChain(ROOT, 8, tokens=tokens),
    ]
    hashes = [block_hash for chain in chains for block_hash in chain.block_hashes]
    assert len(set(hashes)) == len(hashes)


def test_the_encoding_of_a_block_is_pinned() -> None:
    extras = ExtraKeys(
        adapter=b"\xaa" * 32,
        salt="salt",
        media=(MediaItem(b"\xbb" * 32, 3, 4), MediaItem(b"\xcc" * 32, 7, 1)),
    )
    plain = HashChain(ROOT, 4, tokens=[0, 1, 2**32 - 1, 3, 4, 5, 6, 7, 8])
    rich = HashChain(ROOT, 4, extras, tokens=range(12))
    assert [block_hash.hex() for block_hash in plain.block_hashes] == [
        "b3295e3015c6f86354804e41043ab5079ac05451e9efe3fc6f9f44a50954d36c",
        "521e27331dfb804ebff31bef839e9dd32156690fdd7b61bd4156f46deaa760f9",
    ]
    assert [block_hash.hex() for block_hash in rich.block_hashes] == [
        "d202b60c464d7153ae86fe9c52b9467e12dc4ffc7e0c07cbfb6e4d0b47b1477b",
        "e5bfd4f89acfdf270faf3ef6f7b065d500553eddc7fe963fd494faef183340b1",
        "4134c1e987d92dbcbfb08688cc6a9a4458ea9547e36094dd715f0c9924d70278",
    ]


@pytest.mark.parametrize("faulty", [-1, 2**32, 1.5, "7", None])
def test_what_is_no_token_id_is_refused_and_changes_nothing(faulty: object) -> None:
    chain = HashChain(ROOT, 2, tokens=[1, 2, 3])
    with pytest.raises(InvalidParameterError, match="token id"):
        chain.append([4, faulty])  # type: ignore[list-item]
    assert list(chain.tokens) == [1, 2, 3]
    assert chain.num_tokens == 3
    assert len(chain.block_hashes) == 1
