"""Which idle block gives up its key first: one policy per file, and marks that go over any of them.

The pool tells a policy which blocks fall idle, are used again, or are wanted. A policy that needs to
know more of a block than its id asks `BlockFacts` to keep it; the least recently used block is found without.
"""
