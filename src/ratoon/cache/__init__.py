"""Where a block lives: pool, index, eviction, groups, and the manager that the scheduler talks to.

Order of things for one request: `match` asks what is committed, `reserve` takes those blocks and new ones,
a step computes, `commit` makes full blocks findable, `release` lets go. The cache is given a hash chain and
a number for each request; it knows nothing of models, adapters, scheduling or HTTP, and touches no KV
bytes.
"""
