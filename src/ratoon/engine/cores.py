"""Which cores the engine computes on.

The threads of the native ops, of which the engine's own is the first, wait for each other many times in a
step. With a thread for every core, each keeps to its own, so that they always run at the same time. With
fewer, the system chooses: the other cores have other work.
"""

import os


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_to_first_core(num_threads: int) -> None:
    """Keep the calling thread to the first usable core, if each of `num_threads` can have one."""
    if hasattr(os, "sched_setaffinity") and num_threads == usable_cores():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
