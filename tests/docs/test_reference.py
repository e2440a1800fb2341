"""The reference pages name everything there is."""

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from ratoon import errors
from ratoon.cache.stats import CacheStats
from ratoon.cli.main import COMMANDS, command_parser
from ratoon.engine.config import EngineConfig
from ratoon.engine.output import CompletionOutput, OutputDelta, RequestOutput
from ratoon.request.finish import Usage
from ratoon.request.sampling_params import SamplingParams

DOCS = Path(__file__).parents[2] / "docs"


def code_spans(page: str) -> set[str]:
    """Every word that stands in backticks on a page, options and dotted names in one piece."""
    text = (DOCS / page).read_text(encoding="utf-8")
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return {word for span in spans for word in re.findall(r"[\w.-]+", span)}


def commands_of(command: str) -> Iterator[argparse.ArgumentParser]:
    """The parser of a command, and those of its own sub-commands."""
    stack: list[argparse.ArgumentParser] = [command_parser(command)]
    while stack:
        parser = stack.pop()
        yield parser
        stack += subparsers(parser).values()


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {
        name: choice
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, choice in action.choices.items()
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_and_its_options_are_documented(command: str) -> None:
    page = "experiments.md" if command == "lab" else "reference/commands.md"
    documented = code_spans(page) | code_spans("reference/commands.md")
    options = {
        option
        for parser in commands_of(command)
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help" and not option.startswith("--no-")
    }
    assert command in documented
    assert not options - documented, f"{page} lacks {sorted(options - documented)}"


def test_every_error_is_documented_with_its_base_and_exit_status() -> None:
    classes: list[type[errors.RatoonError]] = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RatoonError)
    ]
    page = (DOCS / "reference/errors.md").read_text(encoding="utf-8")
    for kind in classes:
        base = "" if kind is errors.RatoonError else f"`{kind.__mro__[1].__name__}`"
        row = f"| `{kind.__name__}` | {base} | {kind.exit_status} |".replace("|  |", "| |")
        assert row in page, f"errors.md lacks a row that begins with {row}"


@pytest.mark.parametrize(
    "kind", [SamplingParams, EngineConfig, RequestOutput, CompletionOutput, OutputDelta, Usage, CacheStats]
)
def test_every_field_is_documented(kind: type) -> None:
    missing = {field.name for field in fields(kind)} - code_spans("reference/library.md")
    assert not missing, f"library.md lacks {sorted(missing)} of {kind.__name__}"


def test_every_link_leads_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
