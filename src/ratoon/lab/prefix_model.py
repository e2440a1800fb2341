"""`PrefixModel`: what an infinite prefix cache would hit, worked out from token ids alone.

It shares no idea with the engine's cache but the block: no hashes, no pool, no eviction; a tree of the blocks
themselves, in plain sight. Where a server hits less, something was evicted, not yet computed, or is wrong;
where it hits more, something is wrong.
"""

from collections.abc import Sequence
from typing import Literal

WholePrompt = Literal["last token", "last block"]
"""What a server computes again when it has every block of a prompt: the last position's logits must come from
somewhere. Ratoon runs the last token only, vLLM the last block."""


class _Node(dict[tuple[int, ...], "_Node"]):
    """The blocks that are known to follow a prefix."""


class PrefixModel:
    """Everything that was ever computed, by namespace (tenant and salt)."""

    def __init__(self, block_size: int, whole_prompt: WholePrompt = "last token") -> None:
        self._block_size = block_size
        self._recomputed = 1 if whole_prompt == "last token" else block_size
        self._roots: dict[str, _Node] = {}

    def add(self, tokens: Sequence[int], namespace: str = "") -> None:
        """Remember a sequence whose KV was computed: a prompt, and of its output all but the last token."""
        node = self._roots.setdefault(namespace, _Node())
        for block in self._full_blocks(tokens):
            node = node.setdefault(block, _Node())

    def predict(self, tokens: Sequence[int], namespace: str = "") -> int:
        """Return how many tokens of a prompt are cached, if nothing was ever forgotten."""
        node = self._roots.get(namespace, _Node())
        cached = 0
        for block in self._full_blocks(tokens):
            if block not in node:
                return cached
            node = node[block]
            cached += self._block_size
        return cached if cached < len(tokens) else max(0, len(tokens) - self._recomputed)

    def _full_blocks(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        size = self._block_size
        return [tuple(tokens[start : start + size]) for start in range(0, len(tokens) - size + 1, size)]
