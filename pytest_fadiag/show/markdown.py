"""The audit as Markdown: a job's summary, a paper's reporting form, a certificate's README."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .. import __version__
from ..judge.report import Report
from ..judge.words import and_more, one_line, printable, sig
from .audit import Audit
from .cells import Cell, Table, table_of
from .page import templates
from .words import headline, legend, margin_words, notes, setting, words

RUNS_CODE = ("model", "credit", "forward", "loss", "unsafe-load")
"""Options that name code of the authors: ``fadiag verify`` wants them typed."""


PLAIN = re.compile(r"(?:[\w ,.;()%/±−–‖≥≤✗×·→…=^?+-]|: |< )*")
MARKUP = re.compile(r"(?:^|\W)_|_(?:\W|$)|www|^\d+[.)](?: |$)|^[-+] |^[-=+ ]+$|^ ")
"""Among these characters: emphasis, addresses, lists and rules."""


def markdown(audit: Audit) -> str:
    """The whole document; what comes from files stands in backticks, so it cannot become markup."""
    lines = ["## FA audit", "", code(headline(audit)), "", *table_lines(table_of(audit)), ""]
    lines += [f"{code(line)}  " for line in legend(audit)]
    lines += ["", *(f"- {code(note)}" for note in notes(audit))]
    for row in audit.rows:
        if row.report is not None and row.status.fired:
            title = html.escape(one_line(f"{row.checkpoint}: {words(row)}"))
            text = html.escape(printable(str(row.report)))
            lines += ["", f"<details><summary><code>{title}</code></summary>", ""]
            lines += ["<pre>", text, "</pre>", "", "</details>"]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def form(audit: Audit) -> str:
    """The reporting form of a paper, filled in as far as an audit knows."""
    reports = audit.reports
    return _rendered(
        "form.md",
        audit,
        reports=reports,
        setting=setting(audit),
        common=_shared([report.config for report in reports]),
        environment=_shared([report.environment for report in reports]),
        methods=dict.fromkeys(row.method for row in audit.rows),
        notes=notes(audit),
        legend=legend(audit),
        table=table_lines(table_of(audit)),
    )


def _shared(held: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all of these hold."""
    first = held[0] if held else {}
    return {key: value for key, value in first.items() if all(o.get(key) == value for o in held)}


def readme(audit: Audit) -> str:
    """What tells the reviewer of a certificate what to type."""
    options = audit.origin.options if audit.origin else {}
    code = [f"    --{name}={one_line(v)}" for name in RUNS_CODE for v in options.get(name, ())]
    return _rendered("certificate.md", audit, code=code)


def _rendered(template: str, audit: Audit, **values: Any) -> str:
    """A template of Markdown; every value in it is escaped."""

    def each(reports: Sequence[Report], name: str) -> str:
        said = dict.fromkeys(str(getattr(report, name)) for report in reports)
        return and_more([text for text in said if text != "None"]) if set(said) - {"None"} else "–"

    def numbers(held: Sequence[float | None] | None) -> str:
        return ", ".join("–" if value is None else sig(value) for value in held or ()) or "–"

    def shown(value: Any) -> str:
        return "\n".join(value) if isinstance(value, list) else code(str(value), cell=True)

    environment = templates(shown, escape=False)
    environment.filters |= {"each": each, "numbers": numbers}
    environment.filters |= {"and_more": and_more, "margin": margin_words}
    text = environment.get_template(template).render(
        audit=audit, headline=headline(audit), version=__version__, **values
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def code(text: str, *, cell: bool = False) -> str:
    """The text as it is where it holds nothing but words and numbers, else in backticks.

    >>> code("dfa, seed 42"), code("a*b"), code("a`b"), code("a|b", cell=True)
    ('dfa, seed 42', '`a*b`', '`` a`b ``', '<code>a&#124;b</code>')
    """
    shown = one_line(text)
    if PLAIN.fullmatch(shown) and not MARKUP.search(shown):
        return shown
    if cell and "|" in shown:  # no backslash keeps it in its cell, whatever stands before
        safe = (char if char.isalnum() else f"&#{ord(char)};" for char in shown)
        return f"<code>{''.join(safe)}</code>"
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown else f"`{shown}`"


def table_lines(table: Table) -> list[str]:
    """A table of cells; what fired is bold."""
    titles = ["method", "seed", *(column.title for column in table.columns), "verdict"]
    rows = [f"| {' | '.join(titles)} |", "| --- | --- |" + " ---: |" * (len(titles) - 3) + " --- |"]
    for line in table.lines:
        cells = [Cell(line.name), Cell(line.seed), *line.numbers, line.verdict]
        shown = ((code(cell.text, cell=True), cell.tone) for cell in cells)
        bold = (f"**{text}**" if tone == "red" and text else text for text, tone in shown)
        rows.append(f"| {' | '.join(bold)} |")
    return rows if table.lines else []
