from ratoon.draft.stats import DraftStats


def test_drafts_are_counted_by_position() -> None:
    stats = DraftStats()
    stats.add(3, 2)
    stats.add(1, 1)
    stats.add(4, 0)
    assert stats == DraftStats(3, 8, 3, [2, 1, 0, 0])
