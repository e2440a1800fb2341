import pytest

from ratoon.text.control_text import ControlText

CONTROL = ControlText(["<s>", "<sep>", "<se", "[INST]"])


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("", []),
        ("plain < text [", []),
        ("<s>", [(0, 3)]),
        ("a<s><sep>[INST]", [(1, 4), (4, 9), (9, 15)]),
        ("<sep", [(0, 3)]),
        ("<<s>>", [(1, 4)]),
    ],
)
def test_names_are_found_from_the_left_the_longest_first(text: str, places: list[tuple[int, int]]) -> None:
    assert list(CONTROL.find(text)) == places


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", None),
        ("abc", None),
        ("<s>", None),
        ("a [INS", 2),
        ("a [INS \n", 2),
        ("<", 0),
        ("<s", 0),
        ("<sep", 0),
        ("[INST] [", 7),
        ("[INST", 0),
        ("<x", None),
    ],
)
def test_a_name_that_breaks_off_at_the_end_is_found(text: str, place: int | None) -> None:
    assert CONTROL.unfinished(text) == place


def test_without_names_nothing_is_found() -> None:
    none = ControlText([])
    assert list(none.find("<s>")) == []
    assert none.unfinished("<") is None
