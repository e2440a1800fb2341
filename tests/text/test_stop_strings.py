from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratoon.text.stop_strings import StopStrings

LETTERS = st.text(alphabet="ab\N{GRINNING FACE}", max_size=30)
STOPS = st.lists(st.text(alphabet="ab\N{GRINNING FACE}", min_size=1, max_size=5), max_size=4)


def matches(text: str, stops: list[str], *, beyond: int = 0) -> list[tuple[int, str]]:
    """Return the stop strings that end `beyond` some characters, with their ends; by looking everywhere."""
    ends = range(beyond + 1, len(text) + 1)
    return [(end, stop) for stop in stops for end in ends if text[:end].endswith(stop)]


def first_match(text: str, stops: list[str], *, beyond: int = 0) -> str | None:
    """Return the stop string that ends first, and of those the longest."""
    found = matches(text, stops, beyond=beyond)
    return min(found, key=lambda match: (match[0], -len(match[1])))[1] if found else None


def expected(text: str, stops: list[str], *, include: bool) -> str:
    match = first_match(text, stops)
    if match is None:
        return text
    start = text.index(match)
    return text[: start + len(match)] if include else text[:start]


@given(text=LETTERS, stops=STOPS, cuts=st.sets(st.integers(0, 30)), include=st.booleans())
@example(text="aab", stops=["ab"], cuts={1, 2}, include=False)
@example(text="ababb", stops=["abb"], cuts={3}, include=False)
def test_any_cut_of_any_text_shows_the_same(
    text: str, stops: list[str], cuts: set[int], include: bool
) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    watcher = StopStrings(stops, include=include)
    shown = ""
    for begin, end in pairwise(places):
        before = watcher.matched
        shown += watcher.feed(text[begin:end])
        if watcher.matched is None:
            held = text[len(shown) : end]
            assert held == longest_beginning(text[:end], stops), "just enough is held back"
        assert before is None or watcher.matched == before
    shown += watcher.flush()
    assert watcher.matched == first_match(text, stops)
    assert shown == expected(text, stops, include=include)


@given(text=LETTERS, stops=STOPS, free=st.integers(0, 30))
@example(text="aaab", stops=["aa"], free=2)
@example(text="ababab", stops=["abab"], free=4)
def test_what_ends_in_a_piece_that_may_end_nothing_is_text(text: str, stops: list[str], free: int) -> None:
    free = min(free, len(text))
    watcher = StopStrings(stops)
    shown = watcher.feed(text[:free], may_end=False) + watcher.feed(text[free:]) + watcher.flush()
    match = first_match(text, stops, beyond=free)
    assert watcher.matched == match
    end = min((end for end, _ in matches(text, stops, beyond=free)), default=len(text))
    assert shown == text[: end - len(match or "")]


def longest_beginning(text: str, stops: list[str]) -> str:
    """Return the longest end of the text that is a beginning of a stop string."""
    ends = [text[start:] for start in range(len(text))]
    return next((end for end in ends if any(stop.startswith(end) for stop in stops)), "")


def test_a_stop_string_over_three_pieces_is_found() -> None:
    watcher = StopStrings(["<end>"])
    assert [watcher.feed(piece) for piece in ("one <", "en", "d> two", "three")] == ["one ", "", "", ""]
    assert watcher.matched == "<end>"
    assert watcher.flush() == ""


def test_what_was_held_in_vain_is_shown() -> None:
    watcher = StopStrings(["<end>"])
    assert [watcher.feed(piece) for piece in ("a<e", "x", "<")] == ["a", "<ex", ""]
    assert watcher.flush() == "<"


@pytest.mark.parametrize(
    ("stops", "matched", "shown"),
    [
        (["bcd", "c"], "c", "ab"),
        (["c", "abc"], "abc", ""),
        (["d", "bcd", "cd"], "bcd", "a"),
        ([], None, "abcd"),
    ],
)
def test_the_first_to_end_wins_and_then_the_longest(
    stops: list[str], matched: str | None, shown: str
) -> None:
    watcher = StopStrings(stops)
    assert watcher.feed("abcd") + watcher.flush() == shown
    assert watcher.matched == matched
