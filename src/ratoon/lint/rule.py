"""`Rule`: the kinds of differences that keep prompts from sharing, with what to do about each."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Advice:
    """A rule in a few words, and a proposal."""

    title: str
    proposal: str


class Rule(StrEnum):
    """One kind of difference."""

    TOOL_ORDER = "tool_order"
    KEY_ORDER = "key_order"
    WHITESPACE = "whitespace"
    UNICODE = "unicode"
    TIMESTAMP = "timestamp"
    RANDOM_ID = "random_id"
    REASONING_DROPPED = "reasoning_dropped"
    SHUFFLED = "shuffled"
    HISTORY_DROPPED = "history_dropped"
    HISTORY_SUMMARISED = "history_summarised"
    HISTORY_REWRITTEN = "history_rewritten"
    EARLY_CHANGE = "early_change"

    @property
    def advice(self) -> Advice:
        """What it means, and what to do."""
        return _ADVICE[self]


_ADVICE = {
    Rule.TOOL_ORDER: Advice(
        "the same tools in another order", "Send the tools in one fixed order, for instance sorted by name."
    ),
    Rule.KEY_ORDER: Advice(
        "the same JSON with its keys in another order or spacing",
        "Write JSON one way: keys sorted, one spacing (in Python json.dumps(..., sort_keys=True)).",
    ),
    Rule.WHITESPACE: Advice(
        "the same text with other white space", "Build the text one way; strip blanks at its ends."
    ),
    Rule.UNICODE: Advice(
        "the same text in other Unicode characters", "Normalise the text (NFC) once, where it enters."
    ),
    Rule.TIMESTAMP: Advice(
        "a date or time before text that stays the same",
        "Move it behind the stable part, into the last user message, or make it coarser.",
    ),
    Rule.RANDOM_ID: Advice(
        "a random id before text that stays the same",
        "Leave it out, or move it behind the stable part.",
    ),
    Rule.REASONING_DROPPED: Advice(
        "an answer comes back without its reasoning",
        "Keep the reasoning in the history, or let answers think less; some templates drop it by design.",
    ),
    Rule.SHUFFLED: Advice(
        "the same messages or examples in another order",
        "Keep few-shot examples in one order; draw them once per conversation.",
    ),
    Rule.HISTORY_DROPPED: Advice(
        "the oldest messages were dropped",
        "Drop many messages seldom instead of one each turn, and keep what remains unchanged.",
    ),
    Rule.HISTORY_SUMMARISED: Advice(
        "messages were replaced by a summary",
        "Summarise seldom and in large steps; append the summary behind the stable part.",
    ),
    Rule.HISTORY_REWRITTEN: Advice(
        "an earlier message was changed",
        "Treat the history as append-only: put corrections into a new message.",
    ),
    Rule.EARLY_CHANGE: Advice(
        "text that differs stands before text that stays the same",
        "Put what all requests share first, and what belongs to one user or request last.",
    ),
}
