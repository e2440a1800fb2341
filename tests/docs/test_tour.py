"""The tour names functions that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/ratoon"


def defined_names() -> set[str]:
    """Every class, function and `Class.method` of the sources."""
    names = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
                names |= {
                    f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
                }
            elif isinstance(node, ast.FunctionDef):
                names.add(node.name)
    return names


def test_every_name_and_file_on_the_tour_exists() -> None:
    text = (ROOT / "docs/tour.md").read_text(encoding="utf-8")
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    names = {span for span in re.findall(r"`([^`]+)`", prose) if re.fullmatch(r"[\w.]+", span)}
    files = set(re.findall(r"\b[a-z_]+/[a-z_/]+\.py", prose))

    assert not names - defined_names(), f"not in the code: {sorted(names - defined_names())}"
    assert len(names) > 40, "the tour is told by name"
    assert not {file for file in files if not (SOURCE / file).exists() and not (ROOT / file).exists()}
