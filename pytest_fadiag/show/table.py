"""The audit table as text: it fits the terminal, loses columns by priority, and never wraps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from ..judge.diagnostics import Column, ColumnKind
from ..judge.diagnostics.frozen_margin import FrozenMargin
from ..judge.margins import SeedVerdict
from .audit import ACCURACY, Audit, AuditRow, MarginRow
from .changes import moves
from .groups import Mean, MethodGroup, method_groups
from .numbers import deciding
from .printable import cells, one_line, shortened
from .status import Outcome, in_words

LONGEST_METHOD = 24
SHORTEST_METHOD = 8
NARROWEST_VERDICT = 17
EPOCHS_OUTLAST = 3
FIRST = "first fired"
"""The column of the epochs at which diagnostics first fired."""
MEAN = "mean ± sd"
EXCUSED = "^"
"""Behind a number that crosses its threshold and passes all the same; the legend says so."""
ASCII = str.maketrans({"‖": "|", "±": "~", "…": "~", "×": "x", "÷": "/", "—": "-", "→": ">", "«": '"', "»": '"'})


@dataclass(frozen=True)
class Cell:
    """A piece of text, and what it is about."""

    text: str
    fired: bool = False
    """Whether it is about something that fired, or that must not be overlooked."""
    colour: str = ""
    """That of a verdict by which nothing fired."""
    excused: bool = False
    """Whether it bears the mark of a number that is excused."""
    may_be_cut: bool = False
    """Whether it may be as long as the reason of an error is."""


Line = list[Cell]
NONE = Cell("-")


@dataclass(frozen=True)
class Layout:
    """How much a table shows: which columns, how far apart, deviations of norms or only of accuracies, how much of a name."""

    shown: tuple[int, ...]
    gap: int = 2
    spread: bool = True
    longest: int = LONGEST_METHOD
    bounds: bool = True
    """Whether a margin over seeds has its interval beside its verdict."""
    deviations: bool = True
    """Whether a mean has any deviation beside it."""
    first: bool = True
    """Whether the epochs at which diagnostics first fired have a column."""


@dataclass(frozen=True)
class Entry:
    """A line of the table with all that it can show, and what a narrow terminal shows instead."""

    name: str
    seed: str
    numbers: Sequence[Cell]
    verdict: Cell
    first: str = "-"
    without_spread: Sequence[Cell] = ()
    """The numbers without the deviations of norms, where there are deviations."""
    without_bounds: Cell | None = None
    """The verdict without the interval of a margin over seeds, where there is one."""


def layouts(columns: Sequence[Column], marked: Set[int] = frozenset(), empty: Set[int] = frozenset()) -> Iterator[Layout]:
    """From everything to less: first the deviations of norms go, then white space, columns by priority, and long names.

    The columns in which something fired or is excused go last, for without its number nobody sees that it was, and those that
    hold no number go first.
    """
    first = [index for index in marked if columns[index] is not ACCURACY]
    ranked = sorted(
        range(len(columns)),
        key=lambda index: (index not in first, index not in marked, index in empty, columns[index].priority),
    )
    everything = tuple(range(len(columns)))
    yield Layout(everything)
    yield Layout(everything, spread=False)
    yield Layout(everything, spread=False, bounds=False)
    for kept in range(len(columns), max(len(marked), 1) - 1, -1):
        # The epochs outlast every number but the accuracy, the margin and the growth: a log is read for them.
        yield Layout(tuple(sorted(ranked[:kept])), gap=1, spread=False, bounds=False, first=kept > EPOCHS_OUTLAST)
    least = Layout(tuple(sorted(marked)), gap=1, spread=False, bounds=False, first=False, deviations=False)
    yield least
    for kept in range(len(marked), -1, -1):
        yield replace(least, shown=tuple(sorted(ranked[:kept])), longest=SHORTEST_METHOD)


def render(audit: Audit, width: int, *, ascii_only: bool = False) -> list[Line]:
    """The lines of the table: header, each method's rows, its mean row; at most ``width`` characters each."""
    columns = audit.columns
    entries = [entry for group in method_groups(audit) for entry in _entries(group)]
    has_epochs = any(row.first_fired for row in audit.rows)
    lines: list[Line] = []
    empty = {n for n in range(len(columns)) if all(entry.numbers[n].text == NONE.text for entry in entries)}
    for layout in layouts(columns, _marked(columns, entries), empty):
        shown = layout.shown
        if not audit.rows:  # of margins over seeds alone the other columns would be dashes
            shown = tuple(index for index in shown if _is_margin(columns[index]))
        lines = _lines(columns, entries, replace(layout, shown=shown, first=layout.first and has_epochs))
        if _width(lines) <= width:
            break
    return [_fitted(line, width, ascii_only) for line in lines]


def _marked(columns: Sequence[Column], entries: Iterable[Entry]) -> set[int]:
    """The accuracy, and every column in which something fired or is excused."""
    odd = (n for entry in entries for n, cell in enumerate(entry.numbers) if cell.fired or cell.excused)
    return {*odd, columns.index(ACCURACY)}


def _entries(group: MethodGroup) -> list[Entry]:
    """A method's rows, their mean if they are seeds, and the tests of their margin over seeds, a single one beside the mean."""
    beside = group.margins[0] if group.mean is not None and len(group.margins) == 1 else None
    entries = [_row(group.columns, row, label) for row, label in zip(group.rows, _labels(group), strict=True)]
    entries += [] if group.mean is None else [_mean(group, group.mean, beside)]
    return entries + [_margin(group.columns, margin) for margin in group.margins if margin is not beside]


def _labels(group: MethodGroup) -> Iterator[str]:
    """The method of each row, or where another row has the same seed that part of the id which tells them apart."""
    for row in group.rows:
        same = [other.checkpoint.split("/") for other in group.rows if other.seed == row.seed]
        if len(same) == 1:
            yield group.label
            continue
        differs = next((number for number, parts in enumerate(zip(*same, strict=False)) if len(set(parts)) > 1), 0)
        yield "/".join(row.checkpoint.split("/")[differs:])


def _lines(columns: Sequence[Column], entries: Sequence[Entry], layout: Layout) -> list[Line]:
    titles = [*(columns[index].title for index in layout.shown), *[FIRST] * layout.first]
    table = [[Cell(title) for title in ("method", "seed", *titles, "verdict")]]
    for entry in entries:
        numbers = entry.numbers if layout.spread else entry.without_spread or entry.numbers
        verdict = entry.verdict if layout.bounds else entry.without_bounds or entry.verdict
        if not layout.deviations:
            numbers = [replace(cell, text=cell.text.partition("±")[0]) for cell in numbers]
            verdict = replace(verdict, text=verdict.text.replace(MEAN, "mean"))
        line = [Cell(shortened(one_line(entry.name), layout.longest)), Cell(entry.seed)]
        table.append([*line, *(numbers[index] for index in layout.shown), *[Cell(entry.first)] * layout.first, verdict])
    for column in range(len(table[0]) - 1):
        widest = max(cells(line[column].text) for line in table)
        for line in table:
            text = line[column].text
            space = " " * (widest - cells(text))
            padded = text + space if column == 0 else space + text
            line[column] = replace(line[column], text=padded + " " * layout.gap)
    return table


def _row(columns: Sequence[Column], row: AuditRow, label: str) -> Entry:
    status, moved = row.status, moves(row)
    numbers = []
    decided = {} if row.report is None else {f.key: deciding(columns, row.report, f) for f in row.report.findings}
    for column in columns:
        written, decides = None if row.report is None else column.written(row.report), decided.get(column.key) is column
        excused = decides and written is not None and column.key in status.excused
        text = "-" if written is None else written + EXCUSED * excused
        move = moved.get(column.title)
        numbers.append(Cell(f"{text} ({move})" if move else text, decides and column.key in status.fired, excused=excused))
    verdict = Cell(one_line(in_words(status)), status.is_alarming, status.standing.colour, may_be_cut=not status.reported)
    epochs = ((key, f"{key}{':' * (len(key) > 1)}{epoch}") for key, epoch in row.first_fired.items())
    first = " ".join(epoch if key in row.fired else f"({epoch})" for key, epoch in epochs)
    return Entry(label, "" if row.seed is None else str(row.seed), numbers, verdict, first or "-")


def _is_margin(column: Column) -> bool:
    return column.key == FrozenMargin.key and column.kind is ColumnKind.POINTS


def _margin(columns: Sequence[Column], row: MarginRow) -> Entry:
    """A margin over seeds without a mean beside it: of seeds that occur twice, or of which none was measured."""
    margin = row.margin
    numbers = [NONE] * len(columns)
    if margin is not None:
        fired = margin.verdict is SeedVerdict.FIRE
        numbers = [Cell(column.show(margin.margin), fired) if _is_margin(column) else NONE for column in columns]
    seeds = "" if margin is None else f"n={margin.seeds}"
    return Entry(row.name, seeds, numbers, over_seeds(row), without_bounds=over_seeds(row, bounds=False))


def over_seeds(row: MarginRow, *, bounds: bool = True) -> Cell:
    """What became of a margin over seeds, in a few words."""
    margin = row.margin
    if margin is None:
        reason = f": {row.reason}" if row.reason and row.outcome is Outcome.ERROR else ""
        word = "no control" if row.outcome is Outcome.SKIPPED else row.outcome.value
        return Cell(one_line(f"seeds {word}{reason}"), row.outcome in (Outcome.ERROR, Outcome.NOT_RUN))
    interval = f" [{margin.interval.low:+.1f}, {margin.interval.high:+.1f}]" if bounds else ""
    changed = "" if row.expected in (None, margin.verdict.value, "SHORT") else f" (expected {row.expected})"
    text = f"seeds {margin.verdict.value}{'*' * row.as_expected}{interval}{changed}"
    return Cell(text, margin.verdict is SeedVerdict.FIRE or bool(changed))


def _mean(group: MethodGroup, mean: Mean, margin: MarginRow | None) -> Entry:
    whole, without_spread = [], []
    for column, value, deviation in zip(group.columns, mean.values, mean.deviations, strict=True):
        if value is None or deviation is None:
            whole.append(NONE)
            without_spread.append(NONE)
            continue
        text = column.show(value)
        whole.append(Cell(f"{text}±{_short(deviation)}"))
        without_spread.append(Cell(text) if column.kind is ColumnKind.SCALE else whole[-1])
    verdict = Cell(MEAN) if margin is None else over_seeds(margin)
    without_bounds = None if margin is None else over_seeds(margin, bounds=False)
    return Entry(group.label, f"n={mean.seeds}", whole, verdict, "", without_spread, without_bounds)


def _short(deviation: float) -> str:
    """A deviation in two digits: 0.004, 0.53, 2e+06."""
    if not math.isfinite(deviation):
        return "?"
    if deviation == 0:
        return "0"
    return f"{deviation:.1g}" if deviation < 0.1 or deviation >= 1000 else f"{deviation:.2g}"


def _width(lines: Sequence[Line]) -> int:
    """The width that the table needs if the verdict is cut to its narrowest."""
    fixed = sum(cells(cell.text) for cell in lines[0][:-1])
    return fixed + max([NARROWEST_VERDICT, *(cells(line[-1].text) for line in lines if not line[-1].may_be_cut)])


def _fitted(line: Line, width: int, ascii_only: bool) -> Line:
    used = sum(cells(cell.text) for cell in line[:-1])
    fitted = [*line[:-1], replace(line[-1], text=shortened(line[-1].text, max(1, width - used)))]
    return [replace(cell, text=_ascii(cell.text)) for cell in fitted] if ascii_only else fitted


def _ascii(text: str) -> str:
    return text.translate(ASCII).encode("ascii", "replace").decode()
