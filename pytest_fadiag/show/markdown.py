"""The audit as Markdown: the table, the checklist, and a collapsible report for each checkpoint that needs a walk-back."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

from .audit import Audit, Checklist
from .headline import checklist_count, headline, margins_line
from .notes import has_expected, legend, notes_of
from .printable import one_line, printable
from .status import with_published
from .table import Line, render

_MARKUP = re.compile(
    r"[\\`*\[\]|~$#]"  # code, emphasis, links, cells, mathematics, headings
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis, which begins and ends at a word's edge: the bar of h_L is none
    r"|<(?=[A-Za-z/!?])|(?<=\S)>"  # a tag, but neither «<= 50» nor «> 50»
    r"|&(?=#?\w+;)"  # an entity
    r"|@"  # a mention
    r"|:(?=//)|(?<=www)\."  # an address
)
_MENTION = re.compile(r"@(?=[A-Za-z0-9])")
_START = re.compile(r"^(?=>|[-+](?![\w.]))|^\d+(?=[.)](?:\s|$))")
"""What opens a list, a quotation or a rule where a line or a list's item begins: «- x», «1. x», «>x», «---», but not «-0.5»."""
SILENT = "<!-- -->"
"""Nothing, which keeps a name behind an @ from being read as a person's, who would be told: a backslash does not."""


def markdown(audit: Audit) -> str:
    """The whole document; what comes from checkpoints is escaped, so that a name cannot become markup."""
    said = [headline(audit), margins_line(audit)]
    lines = ["## FA audit", "", "; ".join(dict.fromkeys(filter(None, said))), ""]
    table = render(audit, 10_000)
    if audit.rows or audit.margins:
        lines += [*_table(table), ""]
    marks = ["\\* as expected"] if has_expected(audit) else []
    marks += [escaped(line) for line in legend(audit, table)]
    notes = [f"- {escaped(one_line(note), start=True)}" for note in notes_of(audit.rows)]
    for part in (["; ".join(marks)] if marks else [], notes, _checklist(audit.checklist)):
        lines += [*part, ""] if part else []
    for row in audit.rows:
        if row.report is not None and row.fired:
            title = _MENTION.sub(f"@{SILENT}", html.escape(one_line(f"{row.checkpoint}: {with_published(row.status)}")))
            lines += [
                f"<details><summary>{title}</summary>",
                "",
                "<pre>",
                html.escape(printable(str(row.report))),
                "</pre>",
                "",
                "</details>",
                "",
            ]
    return "\n".join(lines[:-1]) + "\n"


def escaped(text: str, *, start: bool = False) -> str:
    """The text with what Markdown would read as markup escaped, within a line or, with ``start``, where one begins."""
    safe = _MARKUP.sub(r"\\\g<0>", text.strip())
    if start:
        safe = _START.sub(r"\g<0>\\", safe)
    return _MENTION.sub(f"@{SILENT}", safe)


def cells(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already; without a row it is no table at all."""
    body = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", "|" + " --- |" * len(head), *body] if body else []


def _table(table: Sequence[Line]) -> list[str]:
    lines = []
    for number, line in enumerate(table):
        bold = [f"**{escaped(c.text)}**" if c.fired and c.text.strip() else escaped(c.text) for c in line]
        lines.append("| " + " | ".join(bold) + " |")
        if number == 0:
            lines.append("| --- | --- |" + " ---: |" * (len(line) - 3) + " --- |")
    return lines


def _checklist(checklist: Checklist | None) -> list[str]:
    """What the reading of evaluation code found: where, which pitfall, what to write instead, or why it may stand."""
    if checklist is None:
        return []
    rows = []
    for finding in sorted(checklist.findings, key=lambda finding: bool(finding.get("silenced"))):
        names = ("file", "line", "number", "title", "code", "fix", "silenced")
        file, line, number, title, code, fix, reason = (escaped(one_line(str(finding.get(name) or ""))) for name in names)
        rows.append((f"{file}:{line}", f"{number}. {title}", code, f"let stand: {reason}" if reason else fix))
    table = cells(("place", "pitfall", "code", "fix, or why it stands"), rows)
    return ["### Checklist", "", f"{checklist_count(checklist)}.", *([""] if table else []), *table]
