import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ratoon.lab.report import drawing
from ratoon.lab.report.files import write_files
from ratoon.lab.report.page import render
from ratoon.lab.report.report import Plot, Report, Section, Table, write_number, write_value
from ratoon.lab.report.terminal import summary
from ratoon.lab.run_store import RunStore
from ratoon.lab.statistics import Estimate

SNAPSHOT = Path(__file__).with_name("snapshot.html")

REPORT = Report(
    "Example",
    "What does a page look like?",
    ("The hit is certain.", "Less than 5 % & more than <nothing>."),
    (
        Section(
            "Requests",
            "Medians.",
            (Plot('<svg viewBox="0 0 1 1"><title>a plot</title></svg>', "One mark per request."),),
            (
                Table(
                    "pair",
                    "Both requests.",
                    ("request", "n", "TTFT (s)"),
                    (
                        ("first", 10, Estimate(1.25, 1.0, 1.5, 10)),
                        ("second", 3, Estimate(0.012345, None, None, 3)),
                        ("third", 0, None),
                    ),
                    main=True,
                ),
            ),
        ),
    ),
    ("second request: HTTP 500: out of order",),
    ("An interval takes 6 values.",),
)

MANIFEST = {
    "started": "2026-01-02T03:04:05+00:00",
    "experiment": "pair",
    "command": "ratoon lab pair --seed 0",
    "machine": {"processor": "A & B", "cores": "2"},
    "versions": {"python": "3.11"},
    "server": {"model": "fake"},
    "settings": {"prompt_lens": [1, 2], "seed": 0},
}


def test_the_page_is_as_it_was() -> None:
    """If the change is meant: delete `snapshot.html`, run this, and look at the new one in a browser."""
    page = render(REPORT, MANIFEST)
    if not SNAPSHOT.exists():
        SNAPSHOT.write_text(page)
        pytest.fail("There was no snapshot; it is written now.")

    assert page == SNAPSHOT.read_text()


def test_the_page_needs_nothing_but_itself() -> None:
    page = render(REPORT, MANIFEST)

    assert not re.search(r"(?:src|href)=|url\(|@import|https?://|<script", page)


def test_what_failed_and_what_is_dangerous_is_written_out() -> None:
    page = render(REPORT, MANIFEST)

    assert "second request: HTTP 500: out of order" in page
    assert "Less than 5 % &amp; more than &lt;nothing&gt;." in page


def test_a_page_without_failures_has_no_place_for_them() -> None:
    assert 'class="failures"' not in render(Report("T", "Q", (), ()), MANIFEST)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (1_729, "1,729"),
        (1_234.5, "1,234"),
        (0.0123456, "0.0123"),
        (12.0, "12.0"),
        (-0.5, "\N{MINUS SIGN}0.500"),
        (0.0, "0"),
        ("pass", "pass"),
        (Estimate(1.5, 1.0, 2.0, 9), "1.50 [1.00, 2.00]"),
        (Estimate(1.5, None, None, 3), "1.50 (n = 3)"),
    ],
)
def test_values_are_written_as_people_read_them(value: Estimate | str | float | None, text: str) -> None:
    assert write_value(value) == text


def test_numbers_keep_three_digits_without_powers_of_ten() -> None:
    assert write_number(0.00001234) == "0.0000123"


def test_files_hold_raw_values_with_bounds_in_columns_of_their_own(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run", MANIFEST)

    page = write_files(REPORT, store)

    assert page.read_text() == render(REPORT, store.manifest)
    assert (tmp_path / "run/tables/pair.csv").read_text().splitlines() == [
        "request,n,TTFT (s),TTFT (s) low,TTFT (s) high",
        "first,10,1.25,1.0,1.5",
        "second,3,0.012345,,",
        "third,0,,,",
    ]
    report = json.loads((tmp_path / "run/report.json").read_text())
    assert report["tables"][0]["rows"][1] == ["second", 3, 0.012345, None, None]
    assert report["run"]["command"] == "ratoon lab pair --seed 0"


def test_the_terminal_gets_findings_failures_and_main_tables() -> None:
    lines = summary(REPORT).splitlines()

    assert "\N{BULLET} The hit is certain." in lines
    assert any("out of order" in line for line in lines)
    assert lines[-3:] == [
        "first    10  1.25 [1.00, 1.50]",
        "second    3     0.0123 (n = 3)",
        f"third     0{' ' * 18}\N{EN DASH}",
    ]


def test_a_drawing_is_an_svg_of_its_own_with_its_text_as_text() -> None:
    with drawing.style():
        figure, (axes,) = drawing.panels(1)
        axes.plot([1, 10], [0.1, 100.0], label="a series")
        drawing.plain_log(axes, "y")
        axes.set_ylabel("TTFT (s)")
        axes.legend()
        first, second = drawing.svg(figure, "one"), drawing.svg(figure, "two")
    root = ElementTree.fromstring(first)
    ids = [set(re.findall(r'id="([^"]+)"', text)) for text in (first, second)]

    assert root.tag.endswith("svg")
    assert "TTFT (s)" in first
    assert "a series" in first
    assert not ids[0] & ids[1]
    assert all(reference in ids[0] for reference in re.findall(r'(?:href="|url\()#([^")]+)', first))
    assert not re.search(r"(?:href|src)=\"[^#]", re.sub(r'xmlns(:\w+)?="[^"]*"', "", first))
