"""Who runs now: queue, budget, admission, preemption, stopping.

Once per step `Scheduler.plan` walks the running requests, the most important first, then admits waiting ones,
and `Scheduler.apply` moves them on by what the step found. There is no prefill phase: every request has known
and computed tokens, and a step moves the second number towards the first within a budget. Blocks are numbers
from the cache; nothing here sees an array or a kernel.
"""
