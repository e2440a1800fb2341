"""The plan of the house, held by reading every import in `src/ratoon`, type-only imports included.

A file imports from its own room or from lower floors. There are no circles. Only `device/` touches arrays,
only `engine/build.py` imports `device/`, and each outside library has one room.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

FLOORS = (
    ("errors",),
    ("util",),
    ("identity", "checkpoint"),
    ("tiers", "spec", "request", "text", "lint", "device/ops"),
    ("step", "grammar"),
    ("cache", "chat", "device/model", "device/sampling"),
    ("sched", "explain", "device/runner"),
    ("draft",),
    ("engine",),
    ("server", "lab", "sim"),
    ("cli", "cluster"),
    ("ratoon",),  # the package's own __init__ and __main__
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

ROOMS_OF_LIBRARY = {
    "fastapi": {"server"},
    "gguf": {"checkpoint"},
    "huggingface_hub": {"checkpoint"},
    "jinja2": {"text"},
    "llguidance": {"grammar"},
    "matplotlib": {"lab"},
    "numpy": {"device", "lab"},  # the lab computes statistics; it is no part of the engine
    "prometheus_client": {"server"},
    "pydantic": {"server"},
    "scipy": {"lab"},
    "starlette": {"server"},
    "tokenizers": {"text"},
    "tqdm": {"util"},
    "uvicorn": {"server"},
}


@dataclass(frozen=True)
class Import:
    """`importer` and `imported` are dotted module names; `imported` is a real module where it is ours."""

    importer: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}, imports {self.imported}"


def module_name(path: Path) -> str:
    name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def room(module: str) -> str:
    """`ratoon.device.ops.native` lives in `device/ops`, `ratoon.cache.pool` in `cache`."""
    parts = module.split(".")[1:]
    if not parts or parts == ["__main__"]:
        return "ratoon"
    return "/".join(parts[:2]) if parts[0] == "device" and len(parts) > 1 else parts[0]


def imports_of(module: str) -> Iterator[Import]:
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}, line {node.lineno}: write relative imports out in full"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield Import(module, node.lineno, submodule if submodule in MODULES else node.module or "")


IMPORTS = tuple(found for module in MODULES for found in imports_of(module))
OURS = tuple(found for found in IMPORTS if found.imported.split(".")[0] == "ratoon")


def listed(violations: list[str]) -> str:
    return "\n  ".join(["", *violations])


def test_every_file_lives_in_a_room_with_a_floor() -> None:
    homeless = [name for name in MODULES if room(name) not in FLOOR_OF and name != "ratoon.device"]
    assert not homeless, f"give these a floor in FLOORS: {listed(homeless)}"


def test_arrows_go_down_only() -> None:
    upward = [
        f"{found}: {room(found.importer)} is on floor {FLOOR_OF[room(found.importer)]}, "
        f"{room(found.imported)} on floor {FLOOR_OF[room(found.imported)]}"
        for found in OURS
        if room(found.importer) != room(found.imported)
        and room(found.imported) in FLOOR_OF
        and FLOOR_OF[room(found.imported)] >= FLOOR_OF[room(found.importer)]
        # The package's own file carries the version; it imports nothing by itself at run time.
        and not (found.imported == "ratoon" and FLOOR_OF[room(found.importer)] >= FLOOR_OF["server"])
    ]
    assert not upward, f"a file imports from its own room or from lower floors: {listed(upward)}"


def test_there_are_no_circles() -> None:
    graph: dict[str, set[str]] = {name: set() for name in MODULES if name != "ratoon"}
    for found in OURS:
        if "ratoon" not in (found.importer, found.imported):
            graph[found.importer].add(found.imported)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"these import each other in a circle: {' -> '.join(error.args[1])}")


def test_only_the_build_file_imports_the_device() -> None:
    through_the_wall = [
        str(found)
        for found in OURS
        if room(found.imported).startswith("device")
        and not room(found.importer).startswith("device")
        and found.importer != "ratoon.engine.build"
    ]
    assert not through_the_wall, f"go through engine/build.py: {listed(through_the_wall)}"


def test_each_outside_library_keeps_to_its_room() -> None:
    astray = []
    for found in IMPORTS:
        library = found.imported.split(".")[0]
        if library == "ratoon" or library in sys.stdlib_module_names:
            continue
        homes = ROOMS_OF_LIBRARY.get(library, set())
        if room(found.importer).split("/")[0] not in homes:
            astray.append(f"{found}: it belongs in {' or '.join(homes) or 'ROOMS_OF_LIBRARY'}")
    assert not astray, f"outside libraries have a room: {listed(astray)}"
