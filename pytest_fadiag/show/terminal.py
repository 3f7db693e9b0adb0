"""What the terminal shows at the end of a run: the table with its notes, and the audit in one line."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from ..judge.diagnostics.frozen_margin import FrozenMargin
from ..judge.margins import SeedVerdict
from ..judge.wording import count
from .audit import Audit, AuditRow, MarginRow
from .headline import INTERRUPTED, fired_counts, published_line, standing_counts
from .notes import EXCUSED_MEANS, has_expected, legend, notes_of
from .printable import one_line as on_one_line
from .printable import printable, shortened
from .status import Outcome, Standing, in_words
from .table import EXCUSED, over_seeds, render


class Writer(Protocol):
    """What a terminal offers: pytest's own writer does."""

    _file: Any

    @property
    def fullwidth(self) -> int: ...
    def write(self, msg: str, **markup: bool) -> None: ...
    def line(self, s: str = "", **markup: bool) -> None: ...


def write_table(writer: Writer, audit: Audit, more: Sequence[str]) -> None:
    """Write the table as wide as the terminal, its notes, and the audit in one line."""
    encoding = getattr(writer._file, "encoding", None) or "ascii"
    table = render(audit, writer.fullwidth, ascii_only="utf" not in encoding.lower())
    for number, line in enumerate(table):
        for column, cell in enumerate(line):
            text = cell.text if column + 1 < len(line) else cell.text.rstrip()
            writer.write(text, bold=number == 0, **dict.fromkeys(filter(None, ["red" if cell.fired else cell.colour]), True))
        writer.line()
    _write_notes(writer, audit, legend(audit, table, writer.fullwidth), more)


def write_brief(writer: Writer, audit: Audit, more: Sequence[str]) -> None:
    """With -q: one line a network and margin, the notes, and the audit in one line."""
    for row in audit.rows:
        line = f"{row.checkpoint}: {in_words(row.status)}{''.join(f' {EXCUSED}{key}' for key in row.status.excused)}"
        colour = "red" if row.status.is_alarming else row.status.standing.colour
        writer.line(shortened(on_one_line(line), writer.fullwidth), **{colour: True})
    for margin in audit.margins:
        writer.line(shortened(f"{margin.name}: {over_seeds(margin).text}", writer.fullwidth), red=over_seeds(margin).fired)
    excused = [f"{EXCUSED} {EXCUSED_MEANS}"] if any(row.status.excused for row in audit.rows) else []
    _write_notes(writer, audit, [*legend(audit, (), writer.fullwidth), *excused], more)


def _write_notes(writer: Writer, audit: Audit, marks: Sequence[str], more: Sequence[str]) -> None:
    if has_expected(audit):
        writer.line("* as expected")
    for mark in marks:
        writer.line(mark)
    for note in (*notes_of(audit.rows), *more):
        text, width = f"note: {printable(note)}", max(20, writer.fullwidth - 1)
        writer.line(textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False))
    writer.line(one_line(audit, writer.fullwidth))


def one_line(audit: Audit, width: int) -> str:
    """The audit in one line: how many rows stand where, and if there is room how often each diagnostic fired."""
    rows, standings = audit.rows, standing_counts(audit.rows)
    counts = " ".join(f"{d.key}:{fired}" for d in audit.diagnostics if (fired := fired_counts(rows, d.key)[0]))
    incomplete = standings[Standing.INCOMPLETE]
    rest = [f"{incomplete} {Standing.INCOMPLETE.word}"] * bool(incomplete)
    uncontrolled = sum(_lacks_control(row) for row in rows)
    rest += [f"{uncontrolled} without control"] * bool(uncontrolled) + [_seed_verdicts(audit), published_line(audit)]
    text, stopped = "", f", {INTERRUPTED}," if audit.interrupted else ""
    for detail in (f" ({counts})" if counts else "", ""):
        first = [f"{standings[Standing.TRUSTWORTHY]} trustworthy", f"{standings[Standing.WALK_BACK]} walk-back{detail}"]
        text = f"FA audit{stopped} of {_audited(rows)}: {', '.join(filter(None, [*(first if rows else ()), *rest]))}"
        if len(text) <= width:
            break
    return text


def _lacks_control(row: AuditRow) -> bool:
    return row.report is not None and row.report.frozen_baseline_acc is None and FrozenMargin.key in row.status.unmeasured


def _seed_verdicts(audit: Audit) -> str:
    """The margins over seeds that do not pass: «seeds: 1 FIRE»; where there is nothing else to say, those that do, too."""
    verdicts = Counter(
        row.outcome.value if row.margin is None else row.margin.verdict.value
        for row in audit.margins
        if not (audit.rows and _needs_no_word(row))
    )
    return f"seeds: {' '.join(f'{number} {verdict}' for verdict, number in sorted(verdicts.items()))}" if verdicts else ""


def _needs_no_word(row: MarginRow) -> bool:
    if row.margin is None:
        return row.outcome in (Outcome.SKIPPED, Outcome.LEFT)
    return row.margin.verdict is SeedVerdict.PASS


def _audited(rows: Sequence[AuditRow]) -> str:
    """How many checkpoints and logs: «3 checkpoints and 1 log»."""
    if not rows:
        return "margins over seeds"
    logs = sum(row.partial for row in rows)
    counted = [count(number, noun) for number, noun in ((len(rows) - logs, "checkpoint"), (logs, "log")) if number]
    return " and ".join(counted)
