"""`DraftStats`: what became of drafts since the start, and whether any are made now."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DraftStats:
    """Written by `Speculation`; may be read from any thread."""

    num_proposals: int = 0
    """Rows of drafts, one per request and step."""
    num_drafts: int = 0
    """Drafts that were verified."""
    num_accepted_drafts: int = 0
    num_accepted_by_position: list[int] = field(default_factory=list)
    """Of first drafts, second drafts, and so on."""
    num_failures: int = 0
    """Times the drafter raised."""
    num_paused_steps: int = 0
    """Steps to go without drafts, after a failure, until the drafter is tried again."""

    def add(self, num_drafts: int, num_accepted: int) -> None:
        """Count a row of drafts, of which the first `num_accepted` were right."""
        self.num_proposals += 1
        self.num_drafts += num_drafts
        self.num_accepted_drafts += num_accepted
        missing = num_drafts - len(self.num_accepted_by_position)
        self.num_accepted_by_position += [0] * missing
        for position in range(num_accepted):
            self.num_accepted_by_position[position] += 1
