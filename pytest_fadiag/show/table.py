"""The audit table as text: it fits the terminal and never wraps."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

from ..judge.words import one_line, printable
from .audit import Audit
from .cells import NONE, Cell, Table, table_of
from .words import headline, legend, margin_words, notes, tone, words

LONGEST_NAME, SHORTEST_NAME = 24, 8
LONGEST_VERDICT, SHORTEST_VERDICT = 30, 17
"""Characters of a verdict that no column takes away; the reason of an error is cut to fewer."""
ASCII = str.maketrans({"‖": "|", "±": "~", "…": "~", "×": "x", "−": "-", "–": "-", "≥": ">="})

Text = list[tuple[str, str]]
"""One line in pieces: each with its colour, or bold."""


def lines(
    audit: Audit,
    width: int = 120,
    more: Sequence[str] = (),
    *,
    quiet: bool = False,
    ascii_only: bool = False,
) -> list[Text]:
    """The table as wide as the terminal, its legend, notes, and the audit in one line.

    With ``quiet`` one line per network and margin instead of the table.
    """
    text = _brief(audit) if quiet else _fitted(table_of(audit), width)
    below = [*legend(audit), *(f"note: {printable(note)}" for note in (*notes(audit), *more))]
    for line in [*below, f"FA audit: {headline(audit)}"]:
        look = "bold" if line.startswith("FA audit: ") else ""
        text += [[(part, look)] for part in textwrap.wrap(line, width - 1, subsequent_indent="  ")]
    return [[(_safe(piece, ascii_only), colour) for piece, colour in line] for line in text]


def table(audit: Audit, width: int = 120) -> str:
    """The same as plain text.

    >>> table(Audit(()))
    'FA audit: nothing was audited\\n'
    """
    rows = ("".join(piece for piece, _ in line).rstrip() for line in lines(audit, width))
    return "\n".join(rows) + "\n"


def _fitted(whole: Table, width: int) -> list[Text]:
    """Everything; without deviations; without columns; with names cut. What fired goes last."""
    if not whole.lines:
        return []
    marked = {n for line in whole.lines for n, cell in enumerate(line.numbers) if cell.marked} | {0}
    rank = sorted(
        range(len(whole.columns)), key=lambda n: (n not in marked, whole.columns[n].priority)
    )
    stages = [(len(rank), False, 2), (len(rank), True, 2)]
    stages += [(n, True, 1) for n in range(len(rank), -1, -1)]
    for count, short, gap in stages:
        shown = sorted(rank[:count])
        text = _lines(whole, shown, short, gap, LONGEST_NAME)
        needed = [
            min(_width(line[-1][0]), LONGEST_VERDICT if cells.verdict.marked else SHORTEST_VERDICT)
            for line, cells in zip(text[1:], whole.lines, strict=True)
        ]
        name = _width(text[0][0][0])
        over = sum(_width(piece) for piece, _ in text[0][:-1]) + max(needed) - width
        if over > 0 and count <= len(marked) and name - over >= SHORTEST_NAME:
            text, over = _lines(whole, shown, short, gap, name - over - 1), 0
        if over <= 0:
            break
    room = width - sum(_width(piece) for piece, _ in text[0][:-1])
    return [[*line[:-1], (_cut(line[-1][0], room), line[-1][1])] for line in text]


def _brief(audit: Audit) -> list[Text]:
    rows = [(row.checkpoint, words(row.status), tone(row.status)) for row in audit.rows]
    rows += [(margin.name, margin_words(margin), "") for margin in audit.margins]
    return [[(f"{one_line(name)}: {said}", colour)] for name, said, colour in rows]


def _lines(whole: Table, shown: Sequence[int], short: bool, gap: int, longest: int) -> list[Text]:
    epochs = [bool(line.first) for line in whole.lines if line.row]
    first = any(epochs) and len(shown) > (2 if all(epochs) else len(whole.columns) - 1)
    titles = ["method", "seed", *(whole.columns[n].title for n in shown)]
    titles += [*["first fired"] * first, "verdict"]
    grid = [[Cell(title, "bold") for title in titles]]
    for line in whole.lines:
        cells = [Cell(_middle(line.name, longest)), Cell(line.seed)]
        cells += [line.numbers[n] for n in shown]
        grid.append([*cells, *[Cell(line.first or NONE)] * first, line.verdict])
    text: list[Text] = [[] for _ in grid]
    for number, column in enumerate(zip(*grid, strict=True)):
        pieces = [cell.short if short and cell.short is not None else cell.text for cell in column]
        widest = max(map(_width, pieces))
        for row, cell, piece in zip(text, column, pieces, strict=True):
            space = " " * (widest - _width(piece))
            last = number + 1 == len(titles)
            padded = piece if last else piece + space if number == 0 else space + piece
            row.append((padded if last else padded + " " * gap, cell.tone))
    return text


def _width(text: str) -> int:
    """Columns of a terminal: letters of East Asia take two, combining marks none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(bool(unicodedata.combining(char)) for char in text)


def _cut(text: str, most: int) -> str:
    if _width(text) <= most:
        return text
    text = text[:most]
    while text and _width(text) > most - 1:
        text = text[:-1]
    return text + "…"


def _middle(text: str, most: int) -> str:
    """A long name without its middle: both ends of a path tell files apart."""
    if _width(text) <= most:
        return text
    half = (most - 1) // 2
    return _cut(f"{text[:half]}…{text[-half:]}", most)


def _safe(text: str, ascii_only: bool) -> str:
    shown = printable(text)
    return shown.translate(ASCII).encode("ascii", "replace").decode() if ascii_only else shown
