"""`ratoon lint FILE...`: what in logged or hand-written prompts keeps them from sharing a cached prefix.

Each request is compared with the earlier ones, of all files. Exit status 1 if something was found.
"""

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ratoon.cli.prompt_text import read_file
from ratoon.engine.open_model import open_model
from ratoon.lint.linter import CountTokens, Linter, Observation, estimate_tokens
from ratoon.lint.log import read_log
from ratoon.lint.report import Finding, findings
from ratoon.text.load import load_tokenizer
from ratoon.util.progress import TerminalProgress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare files and options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="JSON lines, one request each, in OpenAI's or Anthropic's shape; - is stdin",
    )
    parser.add_argument("--json", action="store_true", help="print one object per finding")
    parser.add_argument(
        "--min-tokens",
        type=int,
        default=32,
        metavar="N",
        help="do not mention what costs a request fewer tokens (default: 32)",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="count with a model's tokenizer (default: one token for four bytes)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the findings, those that cost most first."""
    found = findings(_observations(arguments.files, arguments.min_tokens, _counter(arguments.tokenizer)))
    for finding in found:
        print(json.dumps(_as_json(finding)) if arguments.json else _as_text(finding))
    if not found and not arguments.json:
        print("Nothing found: every prompt shares what it could with the earlier ones.")
    return 1 if found else 0


def _observations(files: Iterable[str], min_tokens: int, count: CountTokens) -> Iterator[Observation]:
    linter = Linter(min_tokens=min_tokens, count_tokens=count)
    number = 0
    for name in files:
        lines = read_file(name).splitlines()
        with TerminalProgress() as progress:
            for prompt in read_log(lines, name, number):
                progress("reading prompts", prompt.line - number, len(lines))
                yield from linter.add(prompt)
        number += len(lines)
    yield from linter.suspects()


def _counter(model: str | None) -> CountTokens:
    if model is None:
        return estimate_tokens
    with TerminalProgress() as progress:
        tokenizer = load_tokenizer(open_model(model, progress).checkpoint)

    def count(text: str) -> int:
        valid = text.encode("utf-8", "replace").decode()  # JSON may hold half a character
        return len(tokenizer.encode(valid, add_special=False, parse_special=True))

    return count


def _as_json(finding: Finding) -> dict[str, Any]:
    advice = finding.rule.advice
    return {**asdict(finding), "title": advice.title, "proposal": advice.proposal}


def _as_text(finding: Finding) -> str:
    example, advice = finding.example, finding.rule.advice
    requests = "1 request" if finding.num_requests == 1 else f"{finding.num_requests} requests"
    shown = [f"    {example.after}"]
    where = f"line {example.line}"
    if example.earlier_line != example.line:
        shown.insert(0, f"    {example.before}")
        where += f", compared with line {example.earlier_line}"
    return "\n".join(
        [
            f"{finding.rule}: {advice.title} ({finding.role})",
            f"  costs {finding.tokens_per_request} tokens per request, in {requests}; {where}:",
            *shown,
            f"  {advice.proposal}",
        ]
    )
