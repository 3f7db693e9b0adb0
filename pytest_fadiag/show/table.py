"""The audit table as text: it fits the terminal and never wraps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..judge.words import fold, printable
from .audit import Audit
from .cells import EXEMPTED, FIRED, NONE, Cell, Table, table_of
from .words import about, headline, legend, made, notes

LONGEST_NAME, SHORTEST_NAME = 24, 8
LONGEST = {"red": 23, "green": 28, "yellow": 28}
"""Characters of a verdict that no column takes away."""
MARKS = (FIRED, EXEMPTED)

Text = list[tuple[str, str]]
"""One line in pieces: each with its colour, or bold."""


def lines(audit: Audit, width: int = 120, more: Sequence[str] = ()) -> list[Text]:
    """What was measured, the table as wide as the terminal, legend, notes, the audit in short."""
    numbers = made(audit)
    head = [f"{what}: {said}" for what, said in about(audit).items()]
    head += [f"numbers: {numbers}"] if numbers else []
    text = _wrapped(" · ".join(head), width) + _fitted(table_of(audit), width)
    for line in [*legend(audit), *(f"note: {note}" for note in (*notes(audit), *more))]:
        text += _wrapped(line, width)
    text += _wrapped(
        "; ".join(filter(None, (f"FA audit: {headline(audit)}", numbers))), width, "bold"
    )
    return [[(printable(piece), colour) for piece, colour in line] for line in text]


def _wrapped(line: str, width: int, look: str = "") -> list[Text]:
    return [[(part, look)] for part in fold("", [printable(line)], width - 1)] if line else []


def table(audit: Audit, width: int = 120) -> str:
    """The same as plain text.

    >>> table(Audit(()))
    'FA audit: nothing was audited\\n'
    """
    rows = ("".join(piece for piece, _ in line).rstrip() for line in lines(audit, width))
    return "\n".join(rows) + "\n"


def write_table(writer: Any, audit: Audit, more: Sequence[str] = ()) -> None:
    """Write these lines to a terminal."""
    for line in lines(audit, writer.fullwidth, more):
        for text, colour in line:
            writer.write(text, **({colour: True} if colour else {}))
        writer.line()


def _fitted(whole: Table, width: int) -> list[Text]:
    """Everything; without deviations; without columns; with names cut. What fired goes last."""
    if not whole.lines:
        return []
    marked = {
        n
        for line in whole.lines
        for n, cell in enumerate(line.numbers)
        if cell.text.endswith(MARKS)
    } | {0}
    rank = sorted(
        range(len(whole.columns)), key=lambda n: (n not in marked, whole.columns[n].priority)
    )
    names = range(LONGEST_NAME, SHORTEST_NAME - 1, -1)
    stages = [(len(rank), 2, LONGEST_NAME, False), (len(rank), 2, LONGEST_NAME, True)]
    stages += [(count, 1, LONGEST_NAME, True) for count in range(len(rank), len(marked), -1)]
    stages += [(n, 1, longest, True) for n in range(len(marked), -1, -1) for longest in names]
    for count, gap, longest, short in stages:
        shown = sorted(rank[:count])
        text = _lines(whole, shown, gap, longest, short)
        room = width - sum(len(piece) for piece, _ in text[0][:-1])
        needed = [
            min(len(said.partition(", expected")[0]), LONGEST.get(look, 17))
            for *_, (said, look) in text[2:]
        ]
        if max(needed) <= room:
            break
    fitted = [[*line, (_cut(said, room), look)] for *line, (said, look) in text]
    for at in range(len(whole.lines) - 1, 0, -1):
        if whole.lines[at - 1].row is None:  # a mean ends its group
            fitted.insert(at + 2, [])
    hidden = [column.title for n, column in enumerate(whole.columns) if n not in shown]
    said = f"hidden at {width} columns: {', '.join(hidden)}"
    return [*fitted, *(_wrapped(said, width) if hidden else [])]


def _lines(whole: Table, shown: Sequence[int], gap: int, longest: int, short: bool) -> list[Text]:
    limits = ["", "", *(whole.limits[n] for n in shown), ""]
    titles = ["method", "seed", *(whole.columns[n].title for n in shown), "verdict"]
    grid = [[Cell(text, "bold") for text in line] for line in (limits, titles)]
    above = ""
    for line in whole.lines:
        mean = "  mean" if any(cell.text != NONE for cell in line.numbers) else "  seeds"
        name = mean if line.row is None and line.name == above else line.name
        above = line.name
        numbers = [line.numbers[n] for n in shown]
        grid.append([Cell(_middle(name, longest)), Cell(line.seed), *numbers, line.verdict])
    text: list[Text] = [[] for _ in grid]
    for number, column in enumerate(zip(*grid, strict=True)):
        pieces = [cell.short if short and cell.short else cell.text for cell in column]
        if any(piece.endswith(MARKS) for piece in pieces):
            pieces = [piece if piece.endswith(MARKS) else f"{piece} " for piece in pieces]
        widest = max(map(len, pieces))
        for row, cell, piece in zip(text, column, pieces, strict=True):
            padded = piece.ljust(widest) if number == 0 else piece.rjust(widest)
            last = number + 1 == len(titles)
            row.append((piece if last else padded + " " * gap, cell.tone))
    return text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def _middle(text: str, most: int) -> str:
    """A long name without its middle: both ends of a path tell files apart."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
