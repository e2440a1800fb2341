"""`EngineSnapshot`: what the engine's counters and gauges said at one moment, as plain numbers."""

from dataclasses import dataclass


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
    num_resets: int
    num_preemptions: int
    num_steps: int
    num_failed_steps: int
    plan_s: float
    execute_s: float
    apply_s: float
    num_running: int
    num_waiting: int
    num_active_blocks: int
    num_idle_blocks: int
    num_free_blocks: int
    num_uncommitted_tokens: int
