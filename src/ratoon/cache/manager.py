"""SEAM SKETCH of the cache's face (to be implemented in this file): what the scheduler and `ratoon cache` call.

    CacheManager(groups: tuple[CacheGroupSpec, ...], *, num_blocks, block_size, share_in_flight=True,
                 enable_prefix_caching=True, eviction=LRU)
      .match(chain, num_tokens) -> Match            pure
      .reserve(request_id, chain, num_tokens, match=None) -> bool
            all or nothing. First call of an id: takes the match's hits (ref + 1, out of the free queue), then new
            blocks so that positions < num_tokens have a slot in every group. Later calls grow; a later call with a longer
            match (in-flight re-match) swaps not yet computed blocks for the committed ones. False: nothing changed.
      .announce(request_id, num_tokens)             this step will compute positions < num_tokens; with share_in_flight, other
                                                    requests planned after it in the same step may match these blocks
      .commit(request_id, num_computed)             the step succeeded: newly full blocks enter the index; blocks behind a window go
      .abandon()                                    the step failed: everything announced is forgotten together
      .release(request_id)
      .block_tables(request_id) -> BlockTables      same tuple object until it changes
      .num_cached / .num_free_blocks / .usable_blocks / .blocks_for(num_tokens) ...
      .reset() -> ResetReport                       epoch + 1, number of dropped blocks
      .take_events() -> tuple[CacheEvent, ...]      BlockStored / BlockEvicted / CacheReset since the last call
      .stats                                        cumulative counters (queries/hits in tokens, preempted re-hits apart, evictions, collisions)

    Match(num_cached_tokens, num_blocks, block_ids per group, is_full_hit, limited_by: group index | None)
"""
