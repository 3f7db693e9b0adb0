"""The audit table as text: it fits the terminal, loses columns by priority, and never wraps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..protocol.wording import figure
from .rows import COLUMNS, AuditRow, MeanRow, mean_rows

LONGEST_METHOD = 24
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
    """How much a table shows: which columns, how far apart, and the deviations of norms or only those of accuracies."""

    shown: tuple[int, ...]
    gap: int = 2
    spread: bool = True


def layouts() -> Iterator[Layout]:
    """From everything to less: first the deviations of norms go, then white space, then columns by priority."""
    ranked = sorted(range(len(COLUMNS)), key=lambda index: COLUMNS[index].priority)
    everything = tuple(range(len(COLUMNS)))
    yield Layout(everything)
    yield Layout(everything, spread=False)
    for kept in range(len(COLUMNS), -1, -1):
        yield Layout(tuple(sorted(ranked[:kept])), gap=1, spread=False)


def render(rows: Sequence[AuditRow], width: int, *, ascii_only: bool = False) -> list[Line]:
    """The lines of the table: header, each method's rows, its mean row; at most ``width`` characters each."""
    means = {mean.method: mean for mean in mean_rows(rows)}
    lines: list[Line] = []
    for layout in layouts():
        lines = _lines(rows, means, layout)
        if _width(lines) <= width:
            break
    return [_fitted(line, width, ascii_only) for line in lines]


def _lines(rows: Sequence[AuditRow], means: dict[str, MeanRow], layout: Layout) -> list[Line]:
    titles = [COLUMNS[index].title for index in layout.shown]
    table: list[Line] = [[Cell(title) for title in ("method", "seed", *titles, "verdict")]]
    for index, row in enumerate(rows):
        table.append(_row(row, layout))
        last = index + 1 == len(rows) or rows[index + 1].method != row.method
        if last and row.method in means:
            table.append(_mean(means[row.method], layout))
    for column in range(len(table[0]) - 1):
        widest = max(len(line[column].text) for line in table)
        for line in table:
            text = line[column].text
            padded = text.ljust(widest) if column == 0 else text.rjust(widest)
            line[column] = Cell(padded + " " * layout.gap, line[column].fired)
    return table


def _row(row: AuditRow, layout: Layout) -> Line:
    cells = [Cell(_shortened(row.method, LONGEST_METHOD)), Cell("" if row.seed is None else str(row.seed))]
    for index in layout.shown:
        value = None if row.report is None else COLUMNS[index].value(row.report)
        cells.append(Cell("-" if value is None else COLUMNS[index].show(value), _fired(row, index)))
    alarming = bool(row.fired) or row.verdict.startswith(("error", "not run"))
    return [*cells, Cell(row.verdict, alarming)]


def _mean(mean: MeanRow, layout: Layout) -> Line:
    cells = [Cell(_shortened(mean.method, LONGEST_METHOD)), Cell(f"n={mean.seeds}")]
    for index in layout.shown:
        value, deviation = mean.means[index], mean.deviations[index]
        if value is None or deviation is None:
            cells.append(Cell("-"))
            continue
        text = COLUMNS[index].show(value)
        logarithmic = COLUMNS[index].show is figure
        if layout.spread or not logarithmic:
            text = f"{text}±{_short(deviation)}"
        cells.append(Cell(text))
    return [*cells, Cell("mean ± sd")]


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
    fixed = sum(len(cell.text) for cell in head[:-1])
    short = max((len(line[-1].text) for line in lines if not line[-1].text.startswith("error")), default=0)
    return fixed + max(NARROWEST_VERDICT, short)


def _fitted(line: Line, width: int, ascii_only: bool) -> Line:
    used = sum(len(cell.text) for cell in line[:-1])
    cells = [*line[:-1], Cell(_shortened(line[-1].text, max(1, width - used)), line[-1].fired)]
    return [Cell(_plain(cell.text, ascii_only), cell.fired) for cell in cells]


def _plain(text: str, ascii_only: bool) -> str:
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text.translate(ASCII).encode("ascii", "replace").decode() if ascii_only else text


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
