"""The audit table as cells, once for terminal, Markdown and page."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from ..judge.diagnostics import Column, Diagnostic, Finding, OpenKind, available, columns, get
from ..judge.report import Report
from ..judge.seed_margins import SeedVerdict
from ..judge.verdict import Verdict
from ..judge.words import fraction, grouped, interval, limit, one_line
from .audit import Audit, Margin, Outcome, Row, reports_of
from .charts import Gauge, gauge
from .words import GROUPS, details, margin_words, rule, score_name, tone, words

NONE = "–"
SEED_MARKS = {SeedVerdict.PASS: "", SeedVerdict.FIRE: "✗", SeedVerdict.INCONCLUSIVE: "~"}
MARKS = "✗~?^"
"""At the end of a number: it fails, is undecided, is in doubt, or is exempted."""


class Cell(msgspec.Struct, frozen=True):
    """A piece of text with its colour (red for what fails), and what else an output may show."""

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
    details: Cell = Cell("")
    """The verdict's own remarks, where the table is grouped by verdict."""
    row: Row | None = None
    anchor: str = ""
    """What a link to the network ends with: «dfa-s42»."""


class Head(msgspec.Struct, frozen=True):
    """What stands above a column of numbers."""

    column: Column
    key: str = ""
    """The key of its diagnostic, for a column that decides."""
    limit: str = ""
    """When that fails: «>50×»."""


class Table(msgspec.Struct, frozen=True):
    """The lines of an audit and the heads of their numbers."""

    heads: tuple[Head, ...]
    lines: tuple[Line, ...]


def table_of(audit: Audit) -> Table:
    """Each method's rows, then its mean over seeds with the verdict on its margin."""
    heads = tuple(_heads(audit))
    runs = Counter((row.method, row.seed, row.partial) for row in audit.rows)
    groups = grouped((row.group or _name(row), row) for row in audit.rows)
    margins = {margin.name: margin for margin in audit.margins}
    lines: list[Line] = []
    for group in sorted(
        dict.fromkeys([*groups, *margins]), key=lambda name: _worst(groups.get(name))
    ):
        rows = groups.get(group, [])
        for row in rows:
            name = _name(row)
            if runs[row.method, row.seed, row.partial] > 1:
                name = row.checkpoint
            lines.append(_line(row, one_line(name), heads))
        lines += _over_seeds(one_line(group), rows, margins.get(group), heads)
    return Table(heads, tuple(lines))


class Entry(msgspec.Struct, frozen=True):
    """One diagnostic of one network."""

    mark: str
    look: str
    key: str
    name: str
    number: str = NONE
    fails_if: str = ""
    remark: str = ""
    gauge: Gauge | None = None


def entries_of(row: Row, content: Table) -> Iterator[Entry]:
    """Each diagnostic that was asked for, and one that needs more than was given."""
    report = row.report
    for diagnostic in available():
        key = "" if diagnostic.key == diagnostic.name else diagnostic.key
        if report is not None and diagnostic.name in report.diagnostics:
            if not row.outcomes or diagnostic.key in row.outcomes:
                yield _entry(diagnostic, report.finding(diagnostic.key), row.conclusion, content)
        elif diagnostic.needs_credit and report is not None and not report.partial:
            remark = "add --fa-step package.module:function"
            yield Entry(NONE, "", key, diagnostic.name, remark=remark)


def _entry(diagnostic: Diagnostic, finding: Finding, status: Verdict, content: Table) -> Entry:
    key = diagnostic.key
    number = NONE
    condition = ""
    for head, cell in zip(content.heads, content.lines[0].numbers, strict=True):
        if head.key == key:
            number = cell.text.rstrip(MARKS)
            condition = re.sub("([<>≤])", r"\1 ", head.limit)
    mark, look = mark_of(key, status)
    if not mark:
        mark = "✓" if key in status.passed else NONE
    remarks = [finding.claim]
    if not finding.measured:
        remarks = [finding.error or finding.headline]
    elif finding.interval:
        remarks.insert(0, interval(*finding.interval))
    return Entry(
        mark,
        look,
        "" if key == diagnostic.name else key,
        diagnostic.name,
        number,
        condition,
        one_line(": ".join(filter(None, remarks))),
        gauge(finding, diagnostic),
    )


def _heads(audit: Audit) -> Iterator[Head]:
    """Score, diagnostics, and when one first fired: as far as there are numbers."""
    title = score_name(audit.reports).replace("accuracy", "acc")
    score = Column(title, lambda report: report.headline_acc, fraction, 0)
    keys = {diagnostic.key for diagnostic in audit.diagnostics}
    priority = 9
    if all(report.first_fired for report in audit.reports):
        priority = 1
    first_fired = Column("first failed", _first_epoch, limit, priority, _epochs)
    limits = _limits(audit)
    for column in (score, *columns(), first_fired):
        if column.key and column.key not in keys:
            continue
        if all(column.value(report) is None for report in audit.reports):
            continue
        if column.title in limits:
            yield Head(column, column.key, limits[column.title])
        else:
            yield Head(column)


def _worst(rows: list[Row] | None) -> int:
    """The place of the worst verdict of some rows, the worst first."""
    return min((GROUPS.index(row.conclusion.word) for row in rows or ()), default=len(GROUPS))


def _limits(audit: Audit) -> dict[str, str]:
    """When each diagnostic fails, by the title of the column that decides, its last."""
    limits = {}
    for diagnostic in audit.diagnostics:
        _, *conditions = re.split(r"(?=[<>≤])|,", rule(diagnostic, audit))
        if not diagnostic.columns:
            continue
        text = ""
        if conditions:
            text = re.sub("^(.) ", r"\1", conditions[0])
        limits[diagnostic.columns[-1].title] = text
    return limits


def _name(row: Row) -> str:
    if row.partial:
        return f"{row.method} (log)"
    return row.method


def _line(row: Row, name: str, heads: Sequence[Head]) -> Line:
    numbers = [Cell()] * len(heads)
    if row.report is not None:
        numbers = [_number(row.report, row.conclusion, head) for head in heads]
    seed = ""
    if row.seed is not None:
        seed = str(row.seed)
    look = tone(row)
    anchor = re.sub(r"[^A-Za-z0-9]+", "-", f"{name}-s{seed}" if seed else name)
    return Line(
        name, seed, tuple(numbers), Cell(words(row), look), Cell(details(row), look), row, anchor
    )


def _number(report: Report, status: Verdict, head: Head) -> Cell:
    """One number; the one that decides has a mark and says what it means."""
    column = head.column
    value = column.value(report)
    if value is None:
        return Cell()
    text = column.show(value)
    if column.text is not None:
        text = column.text(report)
    sort = None
    if math.isfinite(value):
        sort = value
    if not head.key:
        return Cell(text, sort=sort)
    hint = report.finding(head.key).headline
    mark, look = mark_of(head.key, status)
    return Cell(text + mark, look, sort=sort, hint=hint)


def mark_of(key: str, status: Verdict) -> tuple[str, str]:
    """The mark of a number and its colour; a plain pass has none."""
    if key in status.fired:
        return "✗", "red"
    if key in status.exempted:
        return "^", ""
    state = status.undecided.get(key)
    if state is None:
        return "", ""
    if state.kind is OpenKind.NOT_RESOLVED:
        return "~", "yellow"
    if state.kind.in_doubt or state.kind is OpenKind.LIKELY:
        return "?", "yellow"
    return "", ""


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
    name: str, rows: list[Row], margin: Margin | None, heads: Sequence[Head]
) -> Iterator[Line]:
    """The mean of several seeds and their margin; two runs of one seed have no mean over seeds."""
    reports = reports_of(rows)
    count = len(reports)
    seeds = {row.seed for row in rows if row.report is not None} - {None}
    numbers = [Cell()] * len(heads)
    if count > 1 and len(seeds) == count:
        numbers = [_mean(head.column, reports) for head in heads]
    elif margin is None:
        return
    verdict = Cell("mean ± sd")
    remark = Cell("")
    if margin is not None:
        short = margin_words(margin, bounds=False)
        look = ""
        if _is_bad(margin):
            look = "red"
        verdict = remark = Cell(margin_words(margin), look, short=short)
        if margin.margin is not None:
            count = margin.margin.seeds
            mark = SEED_MARKS[margin.margin.verdict]
            for place, head in enumerate(heads):
                diagnostic = get(head.key)
                if diagnostic and diagnostic.over_seeds:
                    numbers[place] = _marked(numbers[place], mark, look)
                    if margin.as_expected is not False:
                        remark = Cell("")
    yield Line(name, f"n={count}", tuple(numbers), verdict, remark)


def _marked(cell: Cell, mark: str, look: str) -> Cell:
    """A mean with the mark of the verdict on it."""
    short = f"{cell.short or cell.text}{mark}"
    return replace(cell, text=cell.text.replace(" ±", f"{mark} ±"), short=short, tone=look)


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
    spread = show(sd).lstrip("+")
    _, point, digits = show(mean).partition(".")
    if point and digits.isdecimal() and sd > 10 ** -len(digits):  # as many as the mean has
        spread = f"{sd:.{len(digits)}f}"
    return Cell(f"{show(mean)} ± {spread}", short=show(mean), sort=mean)
