"""`CacheGroupSpec`: the layers that share one block table, and how far back they look."""

from dataclasses import dataclass

BlockTables = tuple[tuple[int, ...], ...]
"""One tuple of block ids per cache group, in logical order; 0 is the null block."""


@dataclass(frozen=True, slots=True)
class CacheGroupSpec:
    """Layers whose KV lives and dies together.

    `window` is None for full attention. With a window of W tokens a query sees itself and the W - 1
    tokens before it. `layers` are layer numbers in model order; empty where there is no model behind
    the cache.
    """

    window: int | None = None
    layers: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """`full` or `sliding`."""
        return "full" if self.window is None else "sliding"

    def first_visible(self, position: int) -> int:
        """Return the first position that the query at `position` sees."""
        return 0 if self.window is None else max(0, position - self.window + 1)
