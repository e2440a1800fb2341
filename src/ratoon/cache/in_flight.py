"""`InFlight`: blocks that the step being planned will fill, shared before they are computed.

Within a step every layer writes all K/V before any attention reads, so a request planned later in the step
may build on a block that an earlier one of the same step computes. That holds for this step only:
afterwards the block is committed, or, if the step failed, worthless to every request that holds it.
"""

from collections.abc import Iterable, Mapping, Sequence

from ratoon.cache.pool import NULL_BLOCK

Announcement = tuple[int, Sequence[int], Sequence[bytes], Sequence[bytes]]
"""Group, block ids, block hashes, token records."""


class InFlight:
    """Announced blocks by hash, one dictionary per group, entered when a match first looks.

    In most steps no match does. `num_abandoned` counts the failed steps.
    """

    __slots__ = ("_block_tokens", "_blocks", "_borrowers", "_entries", "_news", "num_abandoned")

    def __init__(self, num_groups: int) -> None:
        self._news: dict[int, list[Announcement]] = {}
        self._blocks: tuple[dict[bytes, int], ...] = tuple({} for _ in range(num_groups))
        self._entries: dict[int, list[tuple[int, bytes]]] = {}
        self._block_tokens: dict[int, bytes] = {}
        self._borrowers: set[int] = set()
        self.num_abandoned = 0

    @property
    def block_tokens(self) -> Mapping[int, bytes]:
        """Token records of the blocks that are found."""
        self._enter_news()
        return self._block_tokens

    def announce(
        self,
        request_id: int,
        group: int,
        block_ids: Sequence[int],
        block_hashes: Sequence[bytes],
        block_tokens: Sequence[bytes],
    ) -> None:
        """Make blocks findable that `request_id` computes in this step; of equal ones the first is found."""
        self._news.setdefault(request_id, []).append((group, block_ids, block_hashes, block_tokens))

    def has_announced(self, request_id: int) -> bool:
        """Say whether blocks of this request are still in flight."""
        return request_id in self._news or request_id in self._entries

    def complete(self, group: int, block_hashes: Sequence[bytes], found: list[int]) -> None:
        """Put announced blocks where `found` has the null block."""
        self._enter_news()
        blocks = self._blocks[group]
        if blocks:
            for i, block_hash in enumerate(block_hashes):
                found[i] = found[i] or blocks.get(block_hash, NULL_BLOCK)

    def borrow(self, request_id: int, block_ids: Iterable[int]) -> None:
        """Remember `request_id` if it takes a block that is in flight."""
        if not self.block_tokens.keys().isdisjoint(block_ids):
            self._borrowers.add(request_id)

    def settle(self, request_id: int) -> None:
        """Drop what a request announced or borrowed: its step succeeded, or it is gone."""
        self._borrowers.discard(request_id)
        self._news.pop(request_id, None)
        for group, block_hash in self._entries.pop(request_id, ()):
            del self._block_tokens[self._blocks[group].pop(block_hash)]

    def abandon(self) -> set[int]:
        """Drop all announcements and return the requests that hold blocks which were never computed."""
        lost = self._borrowers
        self.withdraw_all()
        self._borrowers = set()
        self.num_abandoned += 1
        return lost

    def withdraw_all(self) -> None:
        """Make these blocks unfindable; requests that borrowed them already still depend on this step."""
        self._news.clear()
        for blocks in self._blocks:
            blocks.clear()
        self._entries.clear()
        self._block_tokens.clear()

    def _enter_news(self) -> None:
        for request_id, announcements in self._news.items():
            entries = self._entries.setdefault(request_id, [])
            for group, block_ids, block_hashes, block_tokens in announcements:
                blocks = self._blocks[group]
                for block_id, block_hash, record in zip(block_ids, block_hashes, block_tokens, strict=True):
                    if blocks.setdefault(block_hash, block_id) == block_id:
                        entries.append((group, block_hash))
                        self._block_tokens[block_id] = record
        self._news.clear()
