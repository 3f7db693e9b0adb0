"""The audit table as text: it fits the terminal and never wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..judge.words import fold, printable
from .audit import Audit
from .cells import EXEMPTED, FIRED, NONE, Cell, Table, table_of
from .words import about, cache_summary, headline, legend, next_steps, notes

LONGEST_NAME, SHORTEST_NAME = 24, 8
VERDICT_WIDTHS = {"red": 23, "green": 28, "yellow": 28}
"""Characters of a verdict that no column takes away, by its colour."""
MARKS = (FIRED, EXEMPTED)

Text = list[tuple[str, str]]
"""One line in pieces: each with its colour, or bold."""


def lines(audit: Audit, width: int = 120, more: Sequence[str] = ()) -> list[Text]:
    """What was measured, the table as wide as the terminal, notes, the verdicts, what to do."""
    setting = [f"{topic}: {text}" for topic, text in about(audit).items()]
    summary = f"FA audit: {headline(audit)}"
    from_cache = cache_summary(audit)
    if from_cache:
        setting.append(f"numbers: {from_cache}")
        summary += f"; {from_cache}"
    text = _wrapped(" · ".join(setting), width)
    text += _fitted(table_of(audit), width)
    for line in legend(audit):
        text += _wrapped(line, width)
    for note in (*notes(audit), *more):
        text += _wrapped(f"note: {note}", width)
    text += _wrapped(summary, width, "bold")
    for step in next_steps(audit):
        text += _wrapped(f"next: {step}", width)
    return [[(printable(piece), look) for piece, look in line] for line in text]


def table(audit: Audit, width: int = 120) -> str:
    """The same as plain text.

    >>> table(Audit(()))
    'FA audit: nothing was audited\\n'
    """
    text = ""
    for line in lines(audit, width):
        text += "".join(piece for piece, _ in line).rstrip() + "\n"
    return text


def write_table(writer: Any, audit: Audit, more: Sequence[str] = ()) -> None:
    """Write these lines to a terminal."""
    for line in lines(audit, writer.fullwidth, more):
        for text, colour in line:
            if colour:
                writer.write(text, **{colour: True})
            else:
                writer.write(text)
        writer.line()


def _wrapped(line: str, width: int, look: str = "") -> list[Text]:
    if not line:
        return []
    return [[(part, look)] for part in fold("", [printable(line)], width - 1)]


class _Layout(NamedTuple):
    """What a table shows at some width."""

    columns: list[int]
    gap: int = 1
    longest_name: int = LONGEST_NAME
    is_short: bool = True
    """Without deviations and bounds."""


def _layouts(content: Table) -> Iterator[_Layout]:
    """From all to nothing: without deviations; without columns; with names cut.

    The columns in which something fired go last.
    """
    marked = {0}
    for line in content.lines:
        for number, cell in enumerate(line.numbers):
            if cell.text.endswith(MARKS):
                marked.add(number)
    columns = range(len(content.columns))
    ranked = sorted(columns, key=lambda n: (n not in marked, content.columns[n].priority))
    yield _Layout([*columns], gap=2, is_short=False)
    yield _Layout([*columns], gap=2)
    for count in range(len(ranked), len(marked), -1):
        yield _Layout(sorted(ranked[:count]))
    for count in range(len(marked), -1, -1):
        for longest_name in range(LONGEST_NAME, SHORTEST_NAME - 1, -1):
            yield _Layout(sorted(ranked[:count]), longest_name=longest_name)


def _fitted(content: Table, width: int) -> list[Text]:
    """The table in the first layout that leaves enough room for the verdicts."""
    if not content.lines:
        return []
    for layout in _layouts(content):
        text = _laid_out(content, layout)
        room = width - sum(len(piece) for piece, _ in text[0][:-1])
        if all(_needed(*line[-1]) <= room for line in text[2:]):
            break
    fitted: list[Text] = []
    for number, (*numbers, (verdict, look)) in enumerate(text):
        if number > 2 and content.lines[number - 3].row is None:  # a mean ends its group
            fitted.append([])
        fitted.append([*numbers, (_cut(verdict, room), look)])
    hidden = []
    for number, column in enumerate(content.columns):
        if number not in layout.columns:
            hidden.append(column.title)
    if hidden:
        fitted += _wrapped(f"hidden at {width} columns: {', '.join(hidden)}", width)
    return fitted


def _needed(verdict: str, colour: str) -> int:
    """The room that a verdict needs; what was expected may be cut."""
    return min(len(verdict.partition(", expected")[0]), VERDICT_WIDTHS.get(colour, 17))


def _laid_out(content: Table, layout: _Layout) -> list[Text]:
    """The thresholds, the titles and all lines; the cells of a column have one width."""
    names = [Cell(_without_middle(name, layout.longest_name)) for name in _names(content)]
    seeds = [Cell(line.seed) for line in content.lines]
    columns = [
        _padded(_column("", "method", names), layout, str.ljust),
        _padded(_column("", "seed", seeds), layout, str.rjust),
    ]
    for n in layout.columns:
        numbers = (line.numbers[n] for line in content.lines)
        column = _column(content.limits[n], content.columns[n].title, numbers)
        columns.append(_padded(column, layout, str.rjust))
    verdicts = _column("", "verdict", (line.verdict for line in content.lines))
    columns.append(_texts(verdicts, layout.is_short))
    return list(map(list, zip(*columns, strict=True)))


def _names(content: Table) -> Iterator[str]:
    """The names of the lines; a mean below its seeds does not repeat theirs."""
    above = ""
    for line in content.lines:
        if line.row is not None or line.name != above:
            yield line.name
        elif all(cell.text == NONE for cell in line.numbers):
            yield "  seeds"
        else:
            yield "  mean"
        above = line.name


def _column(limit: str, title: str, cells: Iterable[Cell]) -> list[Cell]:
    return [Cell(limit, "bold"), Cell(title, "bold"), *cells]


def _texts(column: Sequence[Cell], is_short: bool) -> Text:
    """The cells as text; where one ends in a mark, the others have a space in its place."""
    pieces = []
    for cell in column:
        pieces.append((is_short and cell.short) or cell.text)
    has_marks = any(piece.endswith(MARKS) for piece in pieces)
    text = []
    for cell, piece in zip(column, pieces, strict=True):
        space = ""
        if has_marks and not piece.endswith(MARKS):
            space = " "
        text.append((piece + space, cell.tone))
    return text


def _padded(column: Sequence[Cell], layout: _Layout, align: Callable[[str, int], str]) -> Text:
    text = _texts(column, layout.is_short)
    widest = max(len(piece) for piece, _ in text)
    return [(align(piece, widest) + " " * layout.gap, look) for piece, look in text]


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return text[: max(longest - 1, 0)] + "…"


def _without_middle(text: str, longest: int) -> str:
    """A long name without its middle: both ends of a path tell files apart."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[:half]}…{text[-half:]}"
