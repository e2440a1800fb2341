"""`EngineSnapshot`: what the engine's counters and gauges say at one moment, as plain numbers."""

from dataclasses import asdict, dataclass

from ratoon.engine.core import EngineCore


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """Counters since the start, and gauges of now. Blocks are those of the pool without the null block."""

    num_query_tokens: int
    num_hit_tokens: int
    num_preempted_query_tokens: int
    num_preempted_hit_tokens: int
    num_stored_blocks: int
    num_evicted_blocks: int
    num_collisions: int
    num_retained_blocks: int
    num_retained_hit_blocks: int
    num_resets: int
    num_preemptions: int
    num_steps: int
    num_failed_steps: int
    num_saved_block_reads: int
    num_proposals: int
    num_drafts: int
    num_accepted_drafts: int
    num_accepted_by_position: tuple[int, ...]
    num_draft_failures: int
    num_paused_steps: int
    draft_s: float
    plan_s: float
    execute_s: float
    apply_s: float
    num_running: int
    num_waiting: int
    block_size: int
    num_active_blocks: int
    num_idle_blocks: int
    num_free_blocks: int
    num_keys: int
    num_uncommitted_tokens: int


def take_snapshot(core: EngineCore) -> EngineSnapshot:
    """Read the core; on the engine's thread, between two steps."""
    scheduler, totals, drafts = core.scheduler, core.totals, core.draft_stats
    cache, pool = scheduler.cache, scheduler.cache.pool
    return EngineSnapshot(
        **asdict(cache.stats),
        num_preemptions=scheduler.num_preemptions,
        num_steps=totals.num_steps,
        num_failed_steps=totals.num_failed_steps,
        num_saved_block_reads=totals.num_saved_block_reads,
        num_proposals=drafts.num_proposals,
        num_drafts=drafts.num_drafts,
        num_accepted_drafts=drafts.num_accepted_drafts,
        num_accepted_by_position=tuple(drafts.num_accepted_by_position),
        num_draft_failures=drafts.num_failures,
        num_paused_steps=drafts.num_paused_steps,
        draft_s=totals.draft_s,
        plan_s=totals.plan_s,
        execute_s=totals.execute_s,
        apply_s=totals.apply_s,
        num_running=scheduler.num_running,
        num_waiting=scheduler.num_waiting,
        block_size=cache.block_size,
        num_active_blocks=cache.num_usable_blocks - pool.num_free,
        num_idle_blocks=pool.num_idle,
        num_free_blocks=pool.num_free - pool.num_idle,
        num_keys=pool.num_keys,
        num_uncommitted_tokens=scheduler.num_uncommitted_tokens,
    )
