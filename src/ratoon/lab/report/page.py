"""The page: a report as one HTML file that needs nothing but itself."""

from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import Any

from ratoon.lab.answer import CLOCKS
from ratoon.lab.report.report import Plot, Report, Section, Table, write_value

_PAGE = Template("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title – Ratoon lab</title>
<style>
$style
</style>
</head>
<body>
<header>
<p class="kicker">Ratoon lab · $started</p>
<h1>$title</h1>
<p class="question">$question</p>
</header>
<main>
<section class="findings" aria-label="Findings">
<ul>
$findings
</ul>
</section>
$failures$sections
<section>
<h2>How to read the numbers</h2>
<ul>
$statistics
</ul>
</section>
<section>
<h2>Clocks</h2>
<p>All times are the client's, on one monotonic clock. The server's clock is never read.</p>
$clocks
</section>
<section>
<h2>Conditions</h2>
$conditions
<h3>Again</h3>
<pre>$command</pre>
</section>
</main>
</body>
</html>
""")

STYLE = """\
:root { --ink: #1b1b1b; --soft: #5a5a5a; --line: #d9d9d9; --leaf: #00664b; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 62rem; color: var(--ink); background: #fff;
  font: 16px/1.5 system-ui, "DejaVu Sans", Verdana, sans-serif; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 .4rem; }
.kicker { margin: 0; color: var(--soft); font-size: .85rem; letter-spacing: .02em; }
.question { margin: .25rem 0 0; font-size: 1.1rem; color: var(--soft); max-width: 48rem; }
.findings { margin: 1.5rem 0 0; padding: .75rem 1.25rem; border-left: 4px solid var(--leaf); background: #f3f8f6; }
.findings ul, .failures ul { margin: 0; padding-left: 1.1rem; }
.findings li + li { margin-top: .35rem; }
.failures { margin: 1.25rem 0 0; padding: .75rem 1.25rem; border-left: 4px solid #D55E00; background: #fdf4ee; }
.failures h2 { margin: 0 0 .25rem; padding: 0; border: 0; font-size: 1rem; }
figure { margin: 1rem 0; }
figure svg { display: block; width: 100%; height: auto; }
figcaption, caption { color: var(--soft); font-size: .88rem; text-align: left; }
caption { padding-bottom: .35rem; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem .28rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; vertical-align: bottom; line-height: 1.25; }
td { white-space: nowrap; }
th.text, td.text { text-align: left; }
td.long { white-space: normal; min-width: 16rem; }
th[scope=row] { font-weight: 600; white-space: nowrap; vertical-align: top; }
td.free { white-space: normal; overflow-wrap: anywhere; }
pre { padding: .75rem 1rem; background: #f5f5f5; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2 { break-after: avoid; }
  figure, tr, .findings, .failures { break-inside: avoid; }
  .table { overflow: visible; }
  table { font-size: 7.5pt; }
  td { white-space: normal; }
  td.long { min-width: 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
@page { margin: 15mm; }"""

LONG_TEXT = 40
"""Characters from which a text cell may wrap."""


def render(report: Report, manifest: Mapping[str, Any]) -> str:
    """Return the page. `manifest` tells the conditions; see `RunStore`."""
    return _PAGE.substitute(
        title=escape(report.title),
        style=STYLE,
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
    return f'<figure role="group" aria-label="{caption}">\n{plot.svg}\n<figcaption>{caption}</figcaption>\n</figure>'


def _table(table: Table) -> str:
    text_columns = [any(isinstance(row[index], str) for row in table.rows) for index in range(len(table.columns))]
    heads = "".join(
        f"<th{_class(['text'] if text else [])}>{escape(title)}</th>"
        for title, text in zip(table.columns, text_columns, strict=True)
    )
    lines = [
        "<tr>" + "".join(_cell(write_value(value), text) for value, text in zip(row, text_columns, strict=True)) + "</tr>"
        for row in table.rows
    ]
    body = "\n".join(lines)
    return (
        f'<div class="table"><table>\n<caption>{escape(table.caption)}</caption>\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _cell(text: str, is_text: bool) -> str:
    classes = ["text"] if is_text else []
    if len(text) > LONG_TEXT:
        classes.append("long")
    return f"<td{_class(classes)}>{escape(text)}</td>"


def _class(classes: list[str]) -> str:
    return f' class="{" ".join(classes)}"' if classes else ""


def _facts(facts: Iterable[tuple[str, Any]]) -> str:
    rows = "\n".join(
        f'<tr><th scope="row" class="text">{escape(name)}</th><td class="text free">{escape(_fact(value))}</td></tr>'
        for name, value in facts
    )
    return f'<div class="table"><table>\n<tbody>\n{rows}\n</tbody>\n</table></div>\n'


def _fact(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
