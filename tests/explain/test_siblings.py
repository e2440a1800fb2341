import struct

from hypothesis import given
from hypothesis import strategies as st

from ratoon.explain.siblings import Siblings, num_common

blocks = st.lists(st.sampled_from((0, 1, 255, 256, 2**32 - 1)), min_size=4, max_size=4)


def record(tokens: list[int]) -> bytes:
    return struct.pack("<4I", *tokens)


def test_common_tokens_are_counted_whole() -> None:
    assert num_common(record([1, 2, 3, 4]), record([1, 2, 259, 4])) == 2
    assert num_common(record([1, 2, 3, 4]), record([1, 2, 3, 4])) == 4


@given(st.lists(blocks, min_size=1, unique_by=tuple), blocks, st.data())
def test_the_nearest_of_many_is_as_near_as_a_search_through_all_finds(
    stored: list[list[int]], wanted: list[int], data: st.DataObject
) -> None:
    siblings = Siblings()
    for tokens in stored:
        siblings.add(record(tokens), b"hash of " + record(tokens))
    for gone in data.draw(st.lists(st.sampled_from(stored), unique_by=tuple, max_size=len(stored) - 1)):
        stored = [tokens for tokens in stored if tokens != gone]
        siblings.remove(record(gone), b"hash of " + record(gone))
    longest = max(num_common(record(tokens), record(wanted)) for tokens in stored)
    found, hashes = siblings.nearest(record(wanted))
    assert found == longest
    nearest = {b"hash of " + record(t) for t in stored if num_common(record(t), record(wanted)) == longest}
    assert set(hashes) <= nearest
    assert hashes
