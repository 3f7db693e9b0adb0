"""The audit as Markdown: the table, and a collapsible report for each checkpoint that needs a walk-back."""

from __future__ import annotations

import html
import re

from .notes import notes_of
from .printable import one_line, printable
from .rows import Audit
from .table import render

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~$@&])")


def markdown(audit: Audit) -> str:
    """The whole document; what comes from checkpoints is escaped, so that a name cannot become markup."""
    lines = ["## FA audit", ""]
    rows = audit.rows
    table = render(audit, 10_000)
    for number, cells in enumerate(table):
        bold = [f"**{escaped(c.text)}**" if c.fired and c.text.strip() else escaped(c.text) for c in cells]
        lines.append("| " + " | ".join(bold) + " |")
        if number == 0:
            lines.append("| --- | --- |" + " ---: |" * (len(cells) - 3) + " --- |")
    notes = notes_of(rows)
    lines += ["", *(f"- {escaped(one_line(note))}" for note in notes)] if notes else []
    for row in rows:
        if row.report is not None and row.fired:
            title = html.escape(one_line(f"{row.checkpoint}: {row.report.verdict}"))
            lines += [
                "",
                f"<details><summary>{title}</summary>",
                "",
                "<pre>",
                html.escape(printable(str(row.report))),
                "</pre>",
                "",
                "</details>",
            ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text with everything that Markdown would read as markup escaped."""
    return _SPECIAL.sub(r"\\\1", text.strip())
