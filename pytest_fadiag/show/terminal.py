"""What the terminal shows at the end of a run: the table with its notes, and the audit in one line."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..judge.diagnostics import DIAGNOSTICS
from ..judge.wording import count
from .audit import Audit, AuditRow
from .notes import legend, notes_of
from .printable import printable
from .table import render

LEFT = "left to --fa-merge"
"""What became of a margin over seeds in a part of an audit."""


def write_table(writer: Any, audit: Audit, more: Sequence[str]) -> None:
    """Write the table as wide as the terminal, its notes, and the audit in one line."""
    rows = audit.rows
    encoding = getattr(writer._file, "encoding", None) or "ascii"
    table = render(audit, writer.fullwidth, ascii_only="utf" not in encoding.lower())
    for number, line in enumerate(table):
        for column, cell in enumerate(line):
            text = cell.text if column + 1 < len(line) else cell.text.rstrip()
            writer.write(text, red=cell.fired, bold=number == 0)
        writer.line()
    if any(row.as_expected for row in rows) or any(margin.as_expected for margin in audit.margins):
        writer.line("* as expected")
    for mark in legend(audit, table, writer.fullwidth):
        writer.line(mark)
    for note in (*notes_of(rows), *more):
        writer.line(textwrap.fill(f"note: {printable(note)}", max(20, writer.fullwidth - 1), subsequent_indent="  "))
    writer.line(one_line(audit, writer.fullwidth))


def one_line(audit: Audit, width: int) -> str:
    """The audit in one line: how many checkpoints stand, and if there is room how often each diagnostic fired."""
    rows = audit.rows
    walked = [row for row in rows if row.fired]
    standing = sum(row.verdict.startswith("trustworthy") for row in rows)
    counts = " ".join(f"{d.key}:{fired}" for d in DIAGNOSTICS if (fired := sum(d.key in row.fired for row in walked)))
    seeds = _seed_verdicts(audit)
    text = ""
    for detail in (f" ({counts})" if counts else "", ""):
        parts = [f"{standing} trustworthy", f"{len(walked)} walk-back{detail}"] if rows else []
        rest = [row for row in rows if not row.fired and not row.verdict.startswith("trustworthy")]
        for number, word in ((sum(row.partial for row in rest), "partial"), (sum(not r.partial for r in rest), "incomplete")):
            parts += [f"{number} {word}"] * bool(number)
        uncontrolled = [row for row in rows if row.outcomes.get("d") == "skipped" and row.report is not None]
        if unmeasured := sum(row.report is not None and row.report.frozen_baseline_acc is None for row in uncontrolled):
            parts.append(f"{unmeasured} without control")
        text = f"FA audit of {_named(rows)}: {', '.join(parts + [seeds] * bool(seeds))}"
        if len(text) <= width:
            break
    return text


def _seed_verdicts(audit: Audit) -> str:
    """The margins over seeds that do not pass: «seeds: 1 FIRE»; where there is nothing else to say, those that do, too."""
    named = [margin.outcome if margin.margin is None else margin.margin.verdict.value for margin in audit.margins]
    verdicts = Counter(verdict for verdict in named if not audit.rows or verdict not in ("PASS", "skipped", LEFT))
    return f"seeds: {' '.join(f'{number} {verdict}' for verdict, number in sorted(verdicts.items()))}" if verdicts else ""


def _named(rows: Sequence[AuditRow]) -> str:
    """How many checkpoints and logs: «3 checkpoints and 1 log»."""
    logs = sum(row.partial for row in rows)
    if not rows:
        return "margins over seeds"
    counted = [count(number, noun) for number, noun in ((len(rows) - logs, "checkpoint"), (logs, "log")) if number]
    return " and ".join(counted)
