"""The audit table as cells, once for terminal, Markdown and page."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from ..judge.diagnostics import Column, columns
from ..judge.report import Report
from ..judge.seed_margins import SeedVerdict
from ..judge.verdict import Verdict
from ..judge.words import fraction, grouped, limit, one_line
from .audit import Audit, Margin, Outcome, Row, reports_of
from .words import margin_words, rule, score_name, tone, words

NONE, FIRED, EXEMPTED = "–", "✗", "^"


class Cell(msgspec.Struct, frozen=True):
    """A piece of text with its colour (red for what fired), and what else an output may show."""

    text: str = NONE
    tone: str = ""
    short: str = ""
    """The text for a narrow table: without the deviation or the bounds."""
    sort: float | None = None
    hint: str = ""
    """What the finding says that rests on this number."""


class Line(msgspec.Struct, frozen=True):
    """One line: a row of the audit, or a method over its seeds."""

    name: str
    seed: str
    numbers: tuple[Cell, ...]
    verdict: Cell
    row: Row | None = None


class Table(msgspec.Struct, frozen=True):
    """The lines of an audit and the columns of their numbers."""

    columns: tuple[Column, ...]
    limits: tuple[str, ...]
    """Above the number that decides, the letter of its diagnostic and when it fires: «a >50×»."""
    lines: tuple[Line, ...]


def table_of(audit: Audit) -> Table:
    """Each method's rows, then its mean over seeds with the verdict on its margin."""
    columns = _columns(audit)
    limits = _limits(audit)
    runs = Counter((row.method, row.seed, row.partial) for row in audit.rows)
    groups = grouped((row.group or _name(row), row) for row in audit.rows)
    margins = {margin.name: margin for margin in audit.margins}
    lines: list[Line] = []
    for group in dict.fromkeys([*groups, *margins]):
        rows = groups.get(group, [])
        for row in rows:
            name = _name(row)
            if runs[row.method, row.seed, row.partial] > 1:
                name = row.checkpoint
            lines.append(_line(row, one_line(name), columns, limits))
        lines += _over_seeds(one_line(group), rows, margins.get(group), columns)
    above = tuple(limits.get(column.title, "") for column in columns)
    return Table(tuple(columns), above, tuple(lines))


def _columns(audit: Audit) -> list[Column]:
    """The score, those of the diagnostics, when one first fired: as far as there are numbers."""
    title = score_name(audit.reports).replace("accuracy", "acc")
    score = Column(title, lambda report: report.headline_acc, fraction, 0)
    keys = {diagnostic.key for diagnostic in audit.diagnostics}
    priority = 9
    if all(report.first_fired for report in audit.reports):
        priority = 1
    first_fired = Column("first fired", _first_epoch, limit, priority, _epochs)
    chosen = []
    for column in (score, *columns(), first_fired):
        if column.key and column.key not in keys:
            continue
        if any(column.value(report) is not None for report in audit.reports):
            chosen.append(column)
    return chosen


def _limits(audit: Audit) -> dict[str, str]:
    """When each diagnostic fires, by the title of the column that decides, its last."""
    limits = {}
    for diagnostic in audit.diagnostics:
        _, *conditions = re.split(r"(?=[<>≤])|,", rule(diagnostic, audit))
        if not diagnostic.columns:
            continue
        text = ""
        if conditions:
            text = f"{diagnostic.key} {conditions[0].replace(' ', '')}"
        limits[diagnostic.columns[-1].title] = text
    return limits


def _name(row: Row) -> str:
    if row.partial:
        return f"{row.method} (log)"
    return row.method


def _line(row: Row, name: str, columns: Sequence[Column], limits: Collection[str]) -> Line:
    numbers = []
    for column in columns:
        cell = Cell()
        if row.report is not None:
            cell = _number(row.report, row.status, column, limits)
        numbers.append(cell)
    seed = ""
    if row.seed is not None:
        seed = str(row.seed)
    return Line(name, seed, tuple(numbers), Cell(words(row), tone(row)), row)


def _number(report: Report, status: Verdict, column: Column, limits: Collection[str]) -> Cell:
    """One number; the one that decides has a mark and says what it means."""
    value = column.value(report)
    if value is None:
        return Cell()
    text = column.show(value)
    if column.text is not None:
        text = column.text(report)
    sort = None
    if math.isfinite(value):
        sort = value
    if column.title not in limits:
        return Cell(text, sort=sort)
    hint = report.finding(column.key).headline
    if column.key in status.fired:
        return Cell(text + FIRED, "red", sort=sort, hint=hint)
    if column.key in status.exempted:
        text += EXEMPTED
    return Cell(text, sort=sort, hint=hint)


def _first_epoch(report: Report) -> int | None:
    return min(report.first_fired.values(), default=None)


def _epochs(report: Report) -> str:
    """When each diagnostic first fired; in brackets where it passes at the end."""
    epochs = []
    for key, epoch in report.first_fired.items():
        text = f"{key}{epoch}"
        if len(key) > 1:
            text = f"{key}:{epoch}"
        if key not in report.fired:
            text = f"({text})"
        epochs.append(text)
    return " ".join(epochs)


def _over_seeds(
    name: str, rows: list[Row], margin: Margin | None, columns: Sequence[Column]
) -> Iterator[Line]:
    """The mean of several seeds and their margin; two runs of one seed have no mean over seeds."""
    reports = reports_of(rows)
    count = len(reports)
    seeds = {row.seed for row in rows if row.report is not None} - {None}
    numbers = [Cell()] * len(columns)
    if count > 1 and len(seeds) == count:
        numbers = [_mean(column, reports) for column in columns]
    elif margin is None:
        return
    verdict = Cell("mean ± sd", short="mean")
    if margin is not None:
        short = margin_words(margin, bounds=False)
        look = ""
        if _is_bad(margin):
            look = "red"
        verdict = Cell(margin_words(margin), look, short=short)
        if margin.margin is not None:
            count = margin.margin.seeds
    yield Line(name, f"n={count}", tuple(numbers), verdict)


def _is_bad(margin: Margin) -> bool:
    failed = margin.margin is not None and margin.margin.verdict is SeedVerdict.FIRE
    return failed or margin.as_expected is False or margin.outcome is Outcome.ERROR


def _mean(column: Column, reports: Sequence[Report]) -> Cell:
    """The mean with its deviation, «0.8926 ± 0.0035», where every network has the number."""
    if column.text is _epochs:
        return Cell()
    numbers = []
    for report in reports:
        value = column.value(report)
        if value is None or not math.isfinite(value):
            return Cell()
        numbers.append(value)
    mean = statistics.fmean(numbers)
    sd = statistics.stdev(numbers)
    show = column.show
    if column.text is not None:
        show = "{:.1f}".format
    spread = "0"
    if sd:
        spread = show(sd).lstrip("+")
    return Cell(f"{show(mean)} ± {spread}", short=show(mean), sort=mean)
