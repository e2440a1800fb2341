"""The index does what a dictionary of lists would do."""

from hypothesis import given
from hypothesis import strategies as st

from ratoon.cache.index import BlockIndex


@given(st.data())
def test_the_index_equals_a_dictionary_of_lists(data: st.DataObject) -> None:
    index = BlockIndex()
    twin: dict[bytes, list[int]] = {}
    next_id = 1
    for _ in range(data.draw(st.integers(1, 15), label="steps")):
        held = [(key, block_id) for key, ids in twin.items() for block_id in ids]
        remove = data.draw(st.booleans(), label="remove")
        if held and remove:
            key, block_id = data.draw(st.sampled_from(held), label="block")
            also = [other for other in held if other[0] != key and data.draw(st.booleans(), label="also")]
            removed = [(key, block_id), *{key: (key, block_id) for key, block_id in also}.values()]
            index.remove(*zip(*removed, strict=True))
            for key, block_id in removed:
                twin[key].remove(block_id)
                if not twin[key]:
                    del twin[key]
        else:
            keys = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), max_size=4), label="keys")
            ids = list(range(next_id, next_id + len(keys)))
            next_id += len(keys)
            index.add(keys, ids)
            for key, block_id in zip(keys, ids, strict=True):
                twin.setdefault(key, []).append(block_id)
        assert sorted(index) == sorted(twin)
        assert len(index) == len(twin)
        for key in (b"a", b"b", b"c", b"d"):
            assert index.block_ids(key) == tuple(twin.get(key, ()))
            assert index.first.get(key) == (twin[key][0] if key in twin else None)


def test_a_cleared_index_is_empty() -> None:
    index = BlockIndex()
    index.add([b"a", b"a"], [1, 2])
    index.clear()
    assert list(index) == []
    assert index.block_ids(b"a") == ()
