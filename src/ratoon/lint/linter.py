"""`Linter`: compares each prompt with the earlier ones and says what kept it from sharing more with them."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ratoon.lint.prompt import Prompt, Role
from ratoon.lint.rewriting import (
    ID,
    MOMENT,
    Rewriting,
    with_sorted_keys,
    with_sorted_tools,
    without_ids,
    without_moments,
    without_reasoning,
    without_spacing,
    without_variants,
)
from ratoon.lint.rule import Rule
from ratoon.lint.structure import SHORT_LINE, STANDING, restructured

Rewritings = Sequence[tuple[Rule, Rewriting]]

REWRITINGS: Rewritings = (
    (Rule.TIMESTAMP, without_moments),
    (Rule.RANDOM_ID, without_ids),
    (Rule.KEY_ORDER, with_sorted_keys),
    (Rule.TOOL_ORDER, with_sorted_tools),
    (Rule.WHITESPACE, without_spacing),
    (Rule.UNICODE, without_variants),
    (Rule.REASONING_DROPPED, without_reasoning),
)
"""From the narrowest to the widest, so that each difference is found by its own."""

SHOWN = 24
"""Characters of a difference that are shown."""

NEAR_START = 2000
"""Characters of a prompt's standing text in which a date or an id is suspect by itself."""

CountTokens = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Return about how many tokens a text has: one in four bytes."""
    return len(text.encode("utf-8", "surrogatepass")) // 4


@dataclass(frozen=True, slots=True)
class Observation:
    """A difference that cost a prompt `num_tokens`, first seen in a piece of `role`.

    `before` and `after` show it, in the earlier prompt and in this one.
    """

    rule: Rule
    role: Role
    line: int
    earlier_line: int
    num_tokens: int
    before: str
    after: str


class Linter:
    """Keeps the last `num_kept` prompts. What costs fewer than `min_tokens` is not mentioned."""

    def __init__(
        self,
        *,
        min_tokens: int = 32,
        num_kept: int = 128,
        count_tokens: CountTokens = estimate_tokens,
    ) -> None:
        self._min_tokens = min_tokens
        self._count = count_tokens
        self._kept: deque[tuple[Prompt, dict[int, int]]] = deque(maxlen=num_kept)
        self._compared: set[int] = set()

    def add(self, prompt: Prompt) -> list[Observation]:
        """Return what a prompt lost against the nearest earlier one, and keep it for later ones."""
        lines = _lines(prompt)
        nearest = self._nearest(prompt, lines)
        observations: list[Observation] = []
        if nearest is not None:
            observations += self._compare(nearest, prompt)
            self._compared |= {nearest.line, prompt.line}
        self._kept.append((prompt, lines))
        return observations

    def suspects(self) -> Iterator[Observation]:
        """Yield what could cost the kept prompts that were like no other.

        That is a date or a random id near their start.
        """
        for prompt, _ in self._kept:
            if prompt.line not in self._compared:
                yield from self._suspects_in(prompt)

    def _suspects_in(self, prompt: Prompt) -> Iterator[Observation]:
        standing = "".join(piece.text for piece in prompt.pieces if piece.role in STANDING)[:NEAR_START]
        for rule, pattern in ((Rule.TIMESTAMP, MOMENT), (Rule.RANDOM_ID, ID)):
            found = pattern.search(standing)
            if found is None:
                continue
            position = prompt.text.find(found.group())
            cost = self._count(prompt.text[position:])
            if cost >= self._min_tokens:
                role = prompt.pieces[prompt.piece_at(position)].role
                shown = _excerpt(prompt.text, position)
                yield Observation(rule, role, prompt.line, prompt.line, cost, shown, shown)

    def _nearest(self, prompt: Prompt, lines: dict[int, int]) -> Prompt | None:
        """Return the earlier prompt with the most text in common, of the same conversation if it has any."""
        best, most = None, (False, SHORT_LINE)
        for earlier, its_lines in self._kept:
            shared = sum(size for line, size in its_lines.items() if line in lines)
            same = prompt.conversation is not None and prompt.conversation == earlier.conversation
            if shared and (same, shared) >= most:
                best, most = earlier, (same, shared)
        return best

    def _compare(self, earlier: Prompt, later: Prompt) -> Iterator[Observation]:
        """Yield each rule without which the two have less text in common, then what became of the messages.

        A rule costs what is in common after all rewritings, less what is after all but its own, or less
        than any earlier prompt has in common with this one as it stands.
        """
        known = max(common_length(each.text, later.text) for each, _ in self._kept)
        if known == len(later.text) or later.text.startswith(earlier.text):
            return
        least = self._count(later.text[:known])
        most = self._num_common(earlier, later, REWRITINGS)
        needed = []
        for each in REWRITINGS:
            others = tuple(other for other in REWRITINGS if other is not each)
            cost = most - max(least, self._num_common(earlier, later, others))
            if cost >= self._min_tokens:
                needed.append(each)
                yield _observation(each[0], rewritten(earlier, others), rewritten(later, others), cost)
        a, b = rewritten(earlier, needed), rewritten(later, needed)
        found = restructured(a.pieces, b.pieces)
        if found is not None:
            cost = self._count(later.text) * found[0] // len(later.text)
            if cost >= self._min_tokens:
                yield _observation(found[1], a, b, cost)

    def _num_common(self, earlier: Prompt, later: Prompt, rewritings: Rewritings) -> int:
        """Return the tokens in common at the beginning after rewriting both."""
        a, b = rewritten(earlier, rewritings).text, rewritten(later, rewritings).text
        return self._count(b[: common_length(a, b)])


def rewritten(prompt: Prompt, rewritings: Rewritings) -> Prompt:
    """Return the prompt after rewritings, in order."""
    pieces = prompt.pieces
    for _, rewrite in rewritings:
        pieces = rewrite(pieces)
    return replace(prompt, pieces=pieces)


def common_length(first: str, second: str) -> int:
    """Return how many characters two texts begin with in common, by halving what is left to compare."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _observation(rule: Rule, earlier: Prompt, later: Prompt, num_tokens: int) -> Observation:
    position = common_length(earlier.text, later.text)
    piece = later.pieces[later.piece_at(position)]
    return Observation(
        rule,
        piece.role,
        later.line,
        earlier.line,
        num_tokens,
        _excerpt(earlier.text, position),
        _excerpt(later.text, position),
    )


def _excerpt(text: str, position: int) -> str:
    """Return the text around a position, its control characters as blanks."""
    shown = text[max(0, position - SHOWN // 2) : position + SHOWN]
    return " ".join("".join(c if c.isprintable() else " " for c in shown).split())


def _lines(prompt: Prompt) -> dict[int, int]:
    """Return the lines that are long enough to tell texts apart, as their hashes, with their lengths."""
    lines = (line for piece in prompt.pieces for line in piece.text.splitlines())
    return {hash(line): len(line) for line in lines if len(line) >= SHORT_LINE}
