"""`Finding`: all observations of one kind together."""

from collections.abc import Iterable
from dataclasses import dataclass

from ratoon.lint.linter import Observation
from ratoon.lint.prompt import Role
from ratoon.lint.rule import Rule


@dataclass(frozen=True, slots=True)
class Finding:
    """`num_requests` requests lost `tokens_per_request` each, on average, first in text of `role`.

    `example` is the observation that cost most.
    """

    rule: Rule
    role: Role
    num_requests: int
    tokens_per_request: int
    example: Observation


def findings(observations: Iterable[Observation]) -> list[Finding]:
    """Join observations of one rule in text of one role; the most expensive come first."""
    groups: dict[tuple[Rule, Role], list[Observation]] = {}
    for observation in observations:
        groups.setdefault((observation.rule, observation.role), []).append(observation)
    found = [
        Finding(
            rule,
            role,
            len(group),
            sum(each.num_tokens for each in group) // len(group),
            max(group, key=lambda each: each.num_tokens),
        )
        for (rule, role), group in groups.items()
    ]
    return sorted(found, key=lambda each: -each.num_requests * each.tokens_per_request)
