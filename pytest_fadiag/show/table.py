"""The audit table as text: it fits the terminal, loses columns by priority, and never wraps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..judge.diagnostics import Column, ColumnKind
from ..judge.diagnostics.frozen_margin import FrozenMargin
from ..judge.seeds import SeedVerdict
from ..judge.wording import points
from .audit import COLUMNS, Audit, AuditRow, MarginRow, MeanRow, mean_rows
from .changes import moves
from .printable import cells, one_line, shortened

LONGEST_METHOD = 24
SHORTEST_METHOD = 8
NARROWEST_VERDICT = 17
EPOCHS_OUTLAST = 3
FIRST = "first epoch"
"""The column of the epochs at which diagnostics first fired."""
LOG = " (log)"
"""Behind the method of a row that a training log gave."""
EXCUSED = "^"
"""Behind a number that crosses its threshold and passes all the same; the legend says so."""
ASCII = str.maketrans({"‖": "|", "±": "~", "…": "~", "×": "x", "÷": "/", "—": "-", "→": ">", "«": '"', "»": '"'})


@dataclass(frozen=True)
class Cell:
    """A piece of text and whether it is about something that fired."""

    text: str
    fired: bool = False


Line = list[Cell]


@dataclass(frozen=True)
class Layout:
    """How much a table shows: which columns, how far apart, deviations of norms or only of accuracies, how much of a name."""

    shown: tuple[int, ...]
    gap: int = 2
    spread: bool = True
    longest: int = LONGEST_METHOD
    bounds: bool = True
    """Whether a margin over seeds has its interval beside its verdict."""
    first: bool = True
    """Whether the epochs at which diagnostics first fired have a column."""


def layouts() -> Iterator[Layout]:
    """From everything to less: first the deviations of norms go, then white space, columns by priority, and long names."""
    ranked = sorted(range(len(COLUMNS)), key=lambda index: COLUMNS[index].priority)
    everything = tuple(range(len(COLUMNS)))
    yield Layout(everything)
    yield Layout(everything, spread=False)
    yield Layout(everything, spread=False, bounds=False)
    for kept in range(len(COLUMNS), -1, -1):
        # The epochs outlast every number but the accuracy, the margin and the growth: a log is read for them.
        yield Layout(tuple(sorted(ranked[:kept])), gap=1, spread=False, bounds=False, first=kept > EPOCHS_OUTLAST)
    yield Layout((), gap=1, spread=False, longest=SHORTEST_METHOD, bounds=False, first=False)


def render(audit: Audit, width: int, *, ascii_only: bool = False) -> list[Line]:
    """The lines of the table: header, each method's rows, its mean row; at most ``width`` characters each."""
    groups = _groups(audit)
    lines: list[Line] = []
    for layout in layouts():
        lines = _lines(groups, layout)
        if _width(lines) <= width:
            break
    return [_fitted(line, width, ascii_only) for line in lines]


@dataclass(frozen=True)
class Group:
    """The rows of one method, their mean if they are seeds, and the tests of their margin over seeds."""

    label: str
    rows: Sequence[AuditRow]
    mean: MeanRow | None
    margins: Sequence[MarginRow]


def _groups(audit: Audit) -> list[Group]:
    rows = audit.rows
    means = {(mean.method, mean.partial): mean for mean in mean_rows(rows)}
    by_method: dict[tuple[str, bool], list[AuditRow]] = {(row.method, row.partial): [] for row in rows}
    for row in rows:
        by_method[row.method, row.partial].append(replace(row, method=_label(row, rows)))
    for margin in audit.margins:
        by_method.setdefault((margin.method, margin.partial), [])
    return [
        Group(
            f"{key[0]}{LOG if key[1] else ''}",
            found,
            means.get(key),
            [margin for margin in audit.margins if (margin.method, margin.partial) == key],
        )
        for key, found in by_method.items()
    ]


def _label(row: AuditRow, rows: Sequence[AuditRow]) -> str:
    """The method, or where another row has the same method and seed that part of the id which tells them apart."""
    mine = (row.method, row.seed, row.partial)
    same = [other.checkpoint.split("/") for other in rows if (other.method, other.seed, other.partial) == mine]
    if len(same) == 1:
        return f"{row.method}{LOG if row.partial else ''}"
    differs = next((number for number, parts in enumerate(zip(*same, strict=False)) if len(set(parts)) > 1), 0)
    return "/".join(row.checkpoint.split("/")[differs:])


def _lines(groups: Sequence[Group], layout: Layout) -> list[Line]:
    if not any(group.rows for group in groups):  # of margins over seeds alone the other columns would be dashes
        layout = replace(layout, shown=tuple(index for index in layout.shown if _is_margin(COLUMNS[index])))
    titles = [COLUMNS[index].title for index in layout.shown]
    if not any(row.first_fired for group in groups for row in group.rows):
        layout = replace(layout, first=False)
    titles += [FIRST] * layout.first
    table: list[Line] = [[Cell(title) for title in ("method", "seed", *titles, "verdict")]]
    for group in groups:
        table += [_row(row, layout) for row in group.rows]
        beside = group.margins[0] if group.mean is not None and len(group.margins) == 1 else None
        if group.mean is not None:
            table.append(_mean(group.label, group.mean, beside, layout))
        table += [_margin(margin, layout) for margin in group.margins if margin is not beside]
    for column in range(len(table[0]) - 1):
        widest = max(cells(line[column].text) for line in table)
        for line in table:
            text = line[column].text
            space = " " * (widest - cells(text))
            padded = text + space if column == 0 else space + text
            line[column] = Cell(padded + " " * layout.gap, line[column].fired)
    return table


def _row(row: AuditRow, layout: Layout) -> Line:
    line = [Cell(_name(row.method, layout)), Cell("" if row.seed is None else str(row.seed))]
    excused = set(row.excused)
    for index in layout.shown:
        value = None if row.report is None else COLUMNS[index].value(row.report)
        text = "-" if value is None else COLUMNS[index].show(value) + EXCUSED * (COLUMNS[index].key in excused)
        move = moves(row).get(COLUMNS[index].title)
        line.append(Cell(f"{text} ({move})" if move else text, _fired(row, index)))
    line += [Cell(row.first_fired or "-")] * layout.first
    alarming = bool(row.fired) or row.verdict.startswith(("error", "not run"))
    return [*line, Cell(one_line(row.verdict), alarming)]


def _margin(margin: MarginRow, layout: Layout) -> Line:
    """A margin over seeds without a mean beside it: of seeds that occur twice, or of which none was measured."""
    found = margin.margin
    line = [Cell(_name(margin.name, layout)), Cell("" if found is None else f"n={found.seeds}")]
    shown = Cell("-") if found is None else Cell(points(found.margin), found.verdict is SeedVerdict.FIRE)
    line += [shown if _is_margin(COLUMNS[index]) else Cell("-") for index in layout.shown]
    return [*line, *[Cell("-")] * layout.first, _seeds_verdict(margin, layout)]


def _seeds_verdict(margin: MarginRow, layout: Layout) -> Cell:
    found = margin.margin
    if found is None:
        reason = f": {margin.reason}" if margin.reason and margin.outcome == "error" else ""
        alarming = margin.outcome in ("error", "not run")
        return Cell(one_line(f"seeds {'no control' if margin.outcome == 'skipped' else margin.outcome}{reason}"), alarming)
    bounds = f" [{found.interval.low:+.1f}, {found.interval.high:+.1f}]" if layout.bounds else ""
    star = "*" * margin.as_expected
    changed = "" if margin.expected in (None, found.verdict.value, "SHORT") else f" (expected {margin.expected})"
    return Cell(f"seeds {found.verdict.value}{star}{bounds}{changed}", found.verdict.value == "FIRE" or bool(changed))


def _mean(label: str, mean: MeanRow, margin: MarginRow | None, layout: Layout) -> Line:
    line = [Cell(_name(label, layout)), Cell(f"n={mean.seeds}")]
    for index in layout.shown:
        value, deviation = mean.means[index], mean.deviations[index]
        if value is None or deviation is None:
            line.append(Cell("-"))
            continue
        text = COLUMNS[index].show(value)
        logarithmic = COLUMNS[index].kind is ColumnKind.SCALE
        if layout.spread or not logarithmic:
            text = f"{text}±{_short(deviation)}"
        line.append(Cell(text))
    line += [Cell("")] * layout.first
    return [*line, Cell("mean ± sd") if margin is None else _seeds_verdict(margin, layout)]


def _name(text: str, layout: Layout) -> str:
    return shortened(one_line(text), layout.longest)


def _short(deviation: float) -> str:
    """A deviation in two digits: 0.004, 0.53, 2e+06."""
    if not math.isfinite(deviation):
        return "?"
    if deviation == 0:
        return "0"
    return f"{deviation:.1g}" if deviation < 0.1 or deviation >= 1000 else f"{deviation:.2g}"


def _is_margin(column: Column) -> bool:
    return column.key == FrozenMargin.key and column.kind is ColumnKind.POINTS


def _fired(row: AuditRow, index: int) -> bool:
    return COLUMNS[index].key != "" and COLUMNS[index].key in row.fired


def _width(lines: Sequence[Line]) -> int:
    """The width that the table needs if the verdict is cut to its narrowest."""
    head = lines[0]
    fixed = sum(cells(cell.text) for cell in head[:-1])
    short = max((cells(line[-1].text) for line in lines if not line[-1].text.startswith("error")), default=0)
    return fixed + max(NARROWEST_VERDICT, short)


def _fitted(line: Line, width: int, ascii_only: bool) -> Line:
    used = sum(cells(cell.text) for cell in line[:-1])
    fitted = [*line[:-1], Cell(shortened(line[-1].text, max(1, width - used)), line[-1].fired)]
    return [Cell(_ascii(cell.text), cell.fired) for cell in fitted] if ascii_only else fitted


def _ascii(text: str) -> str:
    return text.translate(ASCII).encode("ascii", "replace").decode()
