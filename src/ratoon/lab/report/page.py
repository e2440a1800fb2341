"""The page: a report as one HTML file that needs nothing but itself."""

import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from ratoon.lab.answer import CLOCKS
from ratoon.lab.report.report import Plot, Report, Section, Table, Value, write_value

LONG_TEXT = 40
"""Characters from which a text cell may wrap."""


def render(report: Report, manifest: Mapping[str, Any]) -> str:
    """Return the page. `manifest` tells the conditions; see `RunStore`."""
    parts = files(__package__)
    return Template(parts.joinpath("page.html").read_text()).substitute(
        title=escape(report.title),
        style=parts.joinpath("page.css").read_text(),
        started=escape(manifest["started"]),
        question=escape(report.question),
        findings=_items(report.findings),
        failures=_failures(report.failures),
        sections="\n".join(map(_section, report.sections)),
        statistics=_items(report.statistics),
        clocks=_facts(CLOCKS),
        conditions="".join(
            f"<h3>{escape(name.capitalize())}</h3>\n{_facts(manifest[name].items())}"
            for name in ("machine", "versions", "server", "settings")
        ),
        command=escape(manifest["command"]),
    )


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"<li>{escape(text)}</li>" for text in texts)


def _failures(failures: tuple[str, ...]) -> str:
    if not failures:
        return ""
    return f'<section class="failures">\n<h2>Failed</h2>\n<ul>\n{_items(failures)}\n</ul>\n</section>\n'


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    parts += map(_plot, section.plots)
    parts += map(_table, section.tables)
    return "\n".join([*parts, "</section>"])


def _plot(plot: Plot) -> str:
    caption = escape(plot.caption)
    return f"<figure>\n{plot.svg}\n<figcaption>{caption}</figcaption>\n</figure>"


def _table(table: Table) -> str:
    text_columns = [any(map(_is_word, column)) for column in zip(*table.rows, strict=True)]
    text_columns = text_columns or [True] * len(table.columns)
    heads = "".join(
        f"<th{_class(['text'] if text else [])}>{escape(title)}</th>"
        for title, text in zip(table.columns, text_columns, strict=True)
    )
    lines = [
        "<tr>"
        + "".join(_cell(write_value(value), text) for value, text in zip(row, text_columns, strict=True))
        + "</tr>"
        for row in table.rows
    ]
    body = "\n".join(lines)
    return (
        f'<div class="table"><table>\n<caption>{escape(table.caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _is_word(value: Value) -> bool:
    return isinstance(value, str) and not re.fullmatch(r"[\d,]*( to [\d,]+)?", value)


def _cell(text: str, is_text: bool) -> str:
    classes = ["text"] if is_text else []
    if len(text) > LONG_TEXT:
        classes.append("long")
    return f"<td{_class(classes)}>{escape(text)}</td>"


def _class(classes: list[str]) -> str:
    return f' class="{" ".join(classes)}"' if classes else ""


def _facts(facts: Iterable[tuple[str, Any]]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row" class="text">{escape(name)}</th>'
        f'<td class="text free">{escape(_fact(value))}</td></tr>'
        for name, value in facts
    )
    return f'<div class="table"><table>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n'


def _fact(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
