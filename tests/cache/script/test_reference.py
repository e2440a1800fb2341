"""The reference page is complete and its example runs."""

from pathlib import Path
from typing import get_args

import pytest

from ratoon.cache.script.operations import Operation
from ratoon.cache.script.reader import read_script
from ratoon.cache.script.session import ScriptSession

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cache-script.md").read_text()
EXAMPLE = read_script(PAGE.split("```json")[1].split("```")[0])


def test_the_example_runs() -> None:
    assert len(list(ScriptSession(EXAMPLE).run())) == len(EXAMPLE.operations)


def test_the_example_shows_every_operation() -> None:
    assert {type(operation) for operation in EXAMPLE.operations} == set(get_args(Operation))


@pytest.mark.parametrize("line", list(ScriptSession(EXAMPLE).run()), ids=lambda line: str(line["op"]))
def test_every_field_of_a_line_is_explained(line: dict[str, object]) -> None:
    for name in line:
        assert f"`{name}`" in PAGE
    (row,) = [row for row in PAGE.splitlines() if row.startswith(f"| `{line['op']}` |")]
    assert row.count("|") == 4
