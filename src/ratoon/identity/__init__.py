"""Who a block is: digests of tokens, of everything else that changes K and V, and of the model behind them.

Owns the canonical encoding and the hashes made from it. A `ModelFingerprint` gives the root, `ExtraKeys`
what a request adds to its tokens, and a `HashChain` ties both to the tokens, block by block. Nothing here
knows where a block lies in memory or whether it was computed.
"""
