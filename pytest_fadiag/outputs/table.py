"""The audit table as text: it fits the terminal, loses columns by priority, and never wraps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..protocol.wording import figure
from .printable import cells, one_line, shortened
from .rows import COLUMNS, AuditRow, MeanRow, mean_rows

LONGEST_METHOD = 24
SHORTEST_METHOD = 8
NARROWEST_VERDICT = 17
ASCII = str.maketrans({"‖": "|", "±": "~", "…": "~", "×": "x", "—": "-", "→": ">", "«": '"', "»": '"'})


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


def layouts() -> Iterator[Layout]:
    """From everything to less: first the deviations of norms go, then white space, columns by priority, and long names."""
    ranked = sorted(range(len(COLUMNS)), key=lambda index: COLUMNS[index].priority)
    everything = tuple(range(len(COLUMNS)))
    yield Layout(everything)
    yield Layout(everything, spread=False)
    for kept in range(len(COLUMNS), -1, -1):
        yield Layout(tuple(sorted(ranked[:kept])), gap=1, spread=False)
    yield Layout((), gap=1, spread=False, longest=SHORTEST_METHOD)


def render(rows: Sequence[AuditRow], width: int, *, ascii_only: bool = False) -> list[Line]:
    """The lines of the table: header, each method's rows, its mean row; at most ``width`` characters each."""
    means = {mean.method: mean for mean in mean_rows(rows)}
    rows = [replace(row, method=_label(row, rows)) for row in rows]
    lines: list[Line] = []
    for layout in layouts():
        lines = _lines(rows, means, layout)
        if _width(lines) <= width:
            break
    return [_fitted(line, width, ascii_only) for line in lines]


def _label(row: AuditRow, rows: Sequence[AuditRow]) -> str:
    """The method, or where another row has the same method and seed that part of the id which tells them apart."""
    same = [other.checkpoint.split("/") for other in rows if (other.method, other.seed) == (row.method, row.seed)]
    if len(same) == 1:
        return row.method
    differs = next((number for number, parts in enumerate(zip(*same, strict=False)) if len(set(parts)) > 1), 0)
    return "/".join(row.checkpoint.split("/")[differs:])


def _lines(rows: Sequence[AuditRow], means: dict[str, MeanRow], layout: Layout) -> list[Line]:
    titles = [COLUMNS[index].title for index in layout.shown]
    table: list[Line] = [[Cell(title) for title in ("method", "seed", *titles, "verdict")]]
    for index, row in enumerate(rows):
        table.append(_row(row, layout))
        last = index + 1 == len(rows) or rows[index + 1].method != row.method
        if last and row.method in means:
            table.append(_mean(means[row.method], layout))
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
    for index in layout.shown:
        value = None if row.report is None else COLUMNS[index].value(row.report)
        line.append(Cell("-" if value is None else COLUMNS[index].show(value), _fired(row, index)))
    alarming = bool(row.fired) or row.verdict.startswith(("error", "not run"))
    return [*line, Cell(one_line(row.verdict), alarming)]


def _mean(mean: MeanRow, layout: Layout) -> Line:
    line = [Cell(_name(mean.method, layout)), Cell(f"n={mean.seeds}")]
    for index in layout.shown:
        value, deviation = mean.means[index], mean.deviations[index]
        if value is None or deviation is None:
            line.append(Cell("-"))
            continue
        text = COLUMNS[index].show(value)
        logarithmic = COLUMNS[index].show is figure
        if layout.spread or not logarithmic:
            text = f"{text}±{_short(deviation)}"
        line.append(Cell(text))
    return [*line, Cell("mean ± sd")]


def _name(text: str, layout: Layout) -> str:
    return shortened(one_line(text), layout.longest)


def _short(deviation: float) -> str:
    """A deviation in two digits: 0.004, 0.53, 2e+06."""
    if not math.isfinite(deviation):
        return "?"
    if deviation == 0:
        return "0"
    return f"{deviation:.1g}" if deviation < 0.1 or deviation >= 1000 else f"{deviation:.2g}"


def _fired(row: AuditRow, index: int) -> bool:
    from ..protocol.diagnostics import DIAGNOSTICS

    owner = next((d.key for d in DIAGNOSTICS if COLUMNS[index] in d.columns), "")
    return bool(owner) and owner in row.fired


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
