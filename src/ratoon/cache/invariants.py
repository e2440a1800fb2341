"""What holds of a `CacheManager` between any two calls; looks at everything, so for tests and scripts."""

from collections import Counter

from ratoon.cache.manager import CacheManager
from ratoon.cache.pool import NULL_BLOCK, BlockPool
from ratoon.cache.request_blocks import RequestBlocks


def check_invariants(manager: CacheManager) -> None:
    """Raise `AssertionError` saying which law is broken, if one is."""
    _check_states(manager.pool)
    _check_index(manager.pool)
    _check_references(manager)
    _check_in_flight(manager)
    for request in manager.requests.values():
        _check_tables(manager, request)
        _check_filled(manager, request)
    if not manager.is_caching:
        assert not manager.pool.num_keys, "a block has a key although caching is off"


def _check_states(pool: BlockPool) -> None:
    """Check that each block is in one of the four states, and free ones queue before idle ones."""
    queue = list(pool.free_queue())
    assert len(queue) == pool.num_free == len(set(queue)), "a block is twice in the free queue"
    assert NULL_BLOCK not in queue, "the null block is in the free queue"
    assert pool.ref_counts[NULL_BLOCK] == 0, "the null block has references"
    assert pool.block_hashes[NULL_BLOCK] is None, "the null block has a key"
    unused = {block_id for block_id, refs in enumerate(pool.ref_counts) if not refs} - {NULL_BLOCK}
    assert set(queue) == unused, "the free queue is not exactly the blocks without references"
    keyed = [pool.block_hashes[block_id] is not None for block_id in queue]
    assert keyed == sorted(keyed), "an idle block stands before a free one"
    assert keyed.count(True) == pool.num_idle, "the policy holds a block without a key"


def _check_index(pool: BlockPool) -> None:
    """Check that index and blocks agree on the keys, and that keyed blocks have token records."""
    keys = [
        (block_id, group, block_hash)
        for group, index in enumerate(pool.indexes)
        for block_hash in index
        for block_id in index.block_ids(block_hash)
    ]
    assert sorted(block_id for block_id, _, _ in keys) == pool.keyed_blocks(), "index and keys differ"
    for block_id, group, block_hash in keys:
        assert pool.block_hashes[block_id] == block_hash, f"block {block_id} is under a key it does not have"
        assert pool.block_groups[block_id] == group, f"block {block_id} is in the index of another group"
    for block_id, tokens in enumerate(pool.block_tokens):
        keyed = pool.block_hashes[block_id] is not None
        assert keyed == (tokens is not None), f"block {block_id} has a key or tokens but not both"


def _check_references(manager: CacheManager) -> None:
    held = Counter(
        block_id
        for request in manager.requests.values()
        for ids in request.ids
        for block_id in ids
        if block_id != NULL_BLOCK
    )
    for block_id, refs in enumerate(manager.pool.ref_counts):
        assert refs == held[block_id], f"block {block_id} has {refs} references and {held[block_id]} holders"


def _check_in_flight(manager: CacheManager) -> None:
    for block_id in manager.in_flight.block_tokens:
        assert manager.pool.ref_counts[block_id] > 0, f"block {block_id} is in flight and unused"
        assert manager.pool.block_hashes[block_id] is None, f"block {block_id} is in flight and committed"


def _check_tables(manager: CacheManager, request: RequestBlocks) -> None:
    """Check that all groups reach equally far and that null blocks are exactly those behind the window."""
    assert request.tables() == tuple(map(tuple, request.ids)), "the tables handed out are out of date"
    assert request.num_computed <= request.num_blocks * manager.block_size, (
        "a token was computed without a slot"
    )
    end = request.num_filled * manager.block_size
    for group, ids, kept in zip(manager.groups, request.ids, request.first_kept, strict=True):
        assert len(ids) == request.num_blocks, "the groups' tables differ in length"
        # A hit may be taken without the block that only its own last token sees.
        windows = group.first_needed(end - 1), group.first_needed(end)
        assert kept in windows, "the table does not start at the window"
        assert not any(ids[:kept]), "a block behind the window is held"
        assert all(ids[kept:]), "a block in the window is missing"


def _check_filled(manager: CacheManager, request: RequestBlocks) -> None:
    """Check that filled blocks have the chain's keys, or are borrowed in this step, and others have none."""
    pool = manager.pool
    computed = request.num_computed // manager.block_size
    assert request.num_filled in (computed, computed + 1), "blocks are filled without being computed"
    for group, (ids, kept) in enumerate(zip(request.ids, request.first_kept, strict=True)):
        for block_id in ids[request.num_filled :]:
            assert pool.block_hashes[block_id] is None, f"block {block_id} has a key and is not full"
        if not manager.is_caching or request.epoch != manager.epoch or request.is_lost:
            continue
        chain = request.chain
        for i, block_id in enumerate(ids[kept : request.num_filled], kept):
            if block_id not in manager.in_flight.block_tokens:
                assert pool.block_hashes[block_id] == chain.block_hashes[i], (
                    f"block {block_id} has a wrong key"
                )
                assert pool.block_groups[block_id] == group, f"block {block_id} belongs to another group"
                assert pool.block_tokens[block_id] == chain.block_tokens[i], f"block {block_id} is another's"
