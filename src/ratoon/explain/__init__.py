"""Why a prompt was cached no further: what the cache once held, and the reason that follows from it.

`History` remembers blocks that are stored and a bounded number of those that were evicted or reset;
`Explainer` finds the first block that a prompt did not find and says why. Nothing here knows text: tokens
go in and come out, and a caller is only ever compared with what it sent itself.
"""
