"""The audit table as cells, once for terminal, Markdown and page."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from ..judge.diagnostics import Column, columns
from ..judge.margins import SeedVerdict
from ..judge.report import Report
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
    title = score_name(audit.reports).replace("accuracy", "acc")
    score = Column(title, lambda report: report.headline_acc, fraction, 0)
    limits = {}
    for own in audit.diagnostics:
        short = re.split(r"(?=[<>≤])|,", rule(own, audit))[1:2]
        if own.columns:  # the last one decides
            limits[own.columns[-1].title] = (
                f"{own.key} {short[0].replace(' ', '')}" if short else ""
            )
    asked = {own.key for own in audit.diagnostics}
    epochs = [report.first_fired for report in audit.reports]
    first = Column(
        "first fired",
        lambda report: min(report.first_fired.values(), default=None),
        limit,
        1 if all(epochs) else 9,
        _epochs,
    )
    known = [score, *(column for column in columns() if column.key in asked), first]
    shown = [c for c in known if any(c.value(report) is not None for report in audit.reports)]
    alike = Counter((row.method, row.seed, row.partial) for row in audit.rows)
    groups = grouped((row.group or _name(row.method, row.partial), row) for row in audit.rows)
    margins = {margin.name: margin for margin in audit.margins}
    lines: list[Line] = []
    for group in dict.fromkeys([*groups, *margins]):
        rows = groups.get(group, [])
        for row in rows:
            unique = alike[row.method, row.seed, row.partial] == 1
            name = _name(row.method, row.partial) if unique else row.checkpoint
            lines.append(_row(shown, limits, row, one_line(name)))
        lines += _over_seeds(shown, one_line(group), rows, margins.get(group))
    return Table(tuple(shown), tuple(limits.get(c.title, "") for c in shown), tuple(lines))


def _name(method: str, partial: bool) -> str:
    return f"{method} (log)" if partial else method


def _row(shown: Sequence[Column], limits: Collection[str], row: Row, name: str) -> Line:
    report, status = row.report, row.status
    numbers = []
    for column in shown:
        value = column.value(report) if report else None
        if report is None or value is None:
            numbers.append(Cell())
            continue
        decides = column.title in limits
        mark = FIRED * (column.key in status.fired) + EXEMPTED * (column.key in status.exempted)
        cell = Cell(
            (column.text(report) if column.text else column.show(value)) + mark * decides,
            "red" if decides and column.key in status.fired else "",
            sort=value if math.isfinite(value) else None,
            hint=report.finding(column.key).headline if decides else "",
        )
        numbers.append(cell)
    verdict = Cell(words(row), tone(row))
    seed = "" if row.seed is None else str(row.seed)
    return Line(name, seed, tuple(numbers), verdict, row)


def _epochs(report: Report) -> str:
    """When each diagnostic first fired; in brackets where it passes at the end."""
    named = {key: f"{key}{':' * (len(key) > 1)}{at}" for key, at in report.first_fired.items()}
    return " ".join(said if key in report.fired else f"({said})" for key, said in named.items())


def _over_seeds(
    shown: Sequence[Column], name: str, rows: list[Row], margin: Margin | None
) -> list[Line]:
    """The mean of several seeds and their margin; two runs of one seed have no mean over seeds."""
    reports = reports_of(rows)
    seeds = {row.seed for row in rows if row.report is not None} - {None}
    means = len(reports) > 1 and len(seeds) == len(reports)
    if not means and margin is None:
        return []
    numbers = [_mean(column, [column.value(r) for r in reports]) for column in shown]
    verdict = Cell("mean ± sd", short="mean")
    if margin is not None:
        failed = margin.margin and margin.margin.verdict is SeedVerdict.FIRE
        bad = failed or margin.as_expected is False or margin.outcome is Outcome.ERROR
        short = margin_words(margin, bounds=False)
        verdict = Cell(margin_words(margin), "red" if bad else "", short=short)
    count = margin.margin.seeds if margin and margin.margin else len(reports)
    cells = numbers if means else [Cell()] * len(shown)
    return [Line(name, f"n={count}", tuple(cells), verdict)]


def _mean(column: Column, values: list[float | None]) -> Cell:
    """The mean with its deviation: «0.8926 ± 0.0035»."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or len(known) < len(values) or column.text is _epochs:
        return Cell()
    mean, sd = statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else 0.0
    show = "{:.1f}".format if column.text else column.show
    short, spread = show(mean), show(sd).lstrip("+") if sd else "0"
    return Cell(f"{short} ± {spread}", short=short, sort=mean)
