"""`CacheStats`: counters since the start. They only grow; a rate is a difference over time."""

from dataclasses import dataclass


@dataclass(slots=True)
class CacheStats:
    """Queries and hits are in tokens and recorded by the scheduler, the rest by the cache itself.

    A query is recorded once per admission. A request that comes back after preemption queries its own
    prompt and output again. Such queries and hits say nothing about sharing, so they are kept apart.
    """

    num_query_tokens: int = 0
    num_hit_tokens: int = 0
    num_preempted_query_tokens: int = 0
    num_preempted_hit_tokens: int = 0
    num_stored_blocks: int = 0
    num_evicted_blocks: int = 0
    num_collisions: int = 0
    num_resets: int = 0

    def record_query(self, num_tokens: int, *, preempted: bool = False) -> None:
        """Count the tokens that an admission asked for."""
        if preempted:
            self.num_preempted_query_tokens += num_tokens
        else:
            self.num_query_tokens += num_tokens

    def record_hit(self, num_tokens: int, *, preempted: bool = False) -> None:
        """Count tokens taken from the cache, at admission or by a later re-match."""
        if preempted:
            self.num_preempted_hit_tokens += num_tokens
        else:
            self.num_hit_tokens += num_tokens
