"""The audit as text: the verdict first, as wide as the terminal, and it never wraps a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..judge.words import fold, printable
from .audit import Audit
from .cells import MARKS, NONE, Cell, Entry, Line, Table, entries_of, table_of
from .words import (
    FAILED,
    GROUPS,
    about,
    advice,
    cache_summary,
    headline,
    legend,
    mark,
    more,
    next_steps,
    notes,
    tone,
    words,
)

LONGEST_NAME, SHORTEST_NAME = 28, 10
LONGEST_DETAILS = 14
"""Characters of details that no column takes away."""

HEADER = Entry(" ", "bold", "", "", "value", "fails if")
Text = list[tuple[str, str]]
"""One line in pieces: each with its colour, or bold."""


def lines(audit: Audit, width: int = 120, remarks: Sequence[str] = ()) -> list[Text]:
    """One network by its diagnostics, several as a table; remarks, the verdicts, what to do."""
    topics = about(audit)
    if "network" in topics:
        topics["network"] = topics["network"].partition(",")[0]
    setting = [*topics.values()]
    from_cache = cache_summary(audit)
    if from_cache:
        setting.append(from_cache)
    what = _wrapped(" · ".join(setting), width)
    marked = [f"! {note}" for note in (*notes(audit), *remarks)]
    if len(audit.rows) == 1 and audit.rows[0].report is not None and not audit.margins:
        text = _card(audit, table_of(audit), width)
        for remark in marked:
            text += _wrapped(f"  {remark}", width)
        marks = [line for line in legend(audit) if line != FAILED]
        text += [*_wrapped("   ".join(marks), width), *what]
    else:
        text = [*what, *_fitted(table_of(audit), width)]
        text += _wrapped("   ".join(legend(audit)), width)
        for remark in marked:
            text += _wrapped(remark, width)
        text += _wrapped(f"{headline(audit)}. {advice(audit)}".strip(), width, "bold")
        for step in next_steps(audit):
            text += _wrapped(f"Next: {step}", width)
    return [[(printable(piece), look) for piece, look in line] for line in text]


def table(audit: Audit, width: int = 120) -> str:
    """The same as plain text.

    >>> table(Audit(()))
    'nothing was audited.\\n'
    """
    text = ""
    for line in lines(audit, width):
        text += "".join(piece for piece, _ in line).rstrip() + "\n"
    return text


def write_table(writer: Any, audit: Audit, remarks: Sequence[str] = ()) -> None:
    """Write these lines to a terminal, and how to see more."""
    width = writer.fullwidth
    footer = _wrapped(f"More: {more(audit)}", width)
    for line in [*lines(audit, width, remarks), *footer]:
        for text, colour in line:
            if colour:
                writer.write(text, **{colour: True})
            else:
                writer.write(text)
        writer.line()


def _wrapped(line: str, width: int, look: str = "") -> list[Text]:
    if not line:
        return []
    prefix = line[: len(line) - len(line.lstrip())]
    return [[(part, look)] for part in fold(prefix, [printable(line.lstrip())], width - 1)]


# --- one network ---


def _card(audit: Audit, content: Table, width: int) -> list[Text]:
    """The verdict, what to write, and a line for each diagnostic: number, threshold, claim."""
    row = audit.rows[0]
    word = row.conclusion.word
    look = tone(row)
    line = content.lines[0]
    name = f"  {line.name}"
    if line.seed:
        name += f", seed {line.seed}"
    score = content.heads[0].column.title.replace("acc", "accuracy")
    title = f"{mark(word)} {word.value.upper() if word else words(row)}"
    text: list[Text] = [[(title, look), (f"{name}, {score} {line.numbers[0].text}", "bold")]]
    for step in next_steps(audit):
        text += _wrapped(f"  Next: {step}", width)
    entries = [HEADER, *entries_of(row, content)]
    fields = ("key", "name", "number", "fails_if")
    keys, names, numbers, conditions = (
        max(len(getattr(entry, field)) for entry in entries) for field in fields
    )
    margin = keys + names + numbers + conditions + 11
    for entry in entries:
        cells = f"{entry.key:{keys}} {entry.name:{names}}  {entry.number:>{numbers}}"
        cells += f"  {entry.fails_if:{conditions}}"
        first, *rest = fold("", [entry.remark], max(width - margin, 24)) or [""]
        text.append([(f"  {entry.mark} {cells}", entry.look), (f"  {first}", "")])
        text += [[(" " * (margin - 1) + part, "")] for part in rest]
    text.append([])
    return text


# --- several networks ---


class _Layout(NamedTuple):
    """What a table shows at some width."""

    columns: list[int]
    gap: int = 1
    longest_name: int = LONGEST_NAME
    is_short: bool = True
    """Without deviations and bounds."""
    has_numbers: bool = True
    """Else a cell of a diagnostic is one character."""


def _layouts(content: Table) -> Iterator[_Layout]:
    """From all to little: without deviations; without columns that decide nothing; marks alone."""
    columns = range(len(content.heads))
    optional = [n for n in columns if n and not content.heads[n].key]
    optional.sort(key=lambda n: -content.heads[n].column.priority)
    yield _Layout([*columns], gap=2, is_short=False)
    yield _Layout([*columns], gap=2)
    for count in range(len(optional) + 1):
        chosen = [n for n in columns if n not in optional[:count]]
        yield _Layout(chosen)
    for longest_name in range(LONGEST_NAME, SHORTEST_NAME - 1, -1):
        yield _Layout(chosen, longest_name=longest_name)
    for longest_name in range(LONGEST_NAME, SHORTEST_NAME - 1, -1):
        yield _Layout(chosen, longest_name=longest_name, has_numbers=False)


def _fitted(content: Table, width: int) -> list[Text]:
    """The table in the first layout that leaves enough room for the details, by verdict."""
    if not content.lines:
        return []
    groups = [*_groups(content)]
    ordered = replace(content, lines=tuple(line for _, line in groups))
    for layout in _layouts(ordered):
        text = _laid_out(ordered, layout)
        room = width - sum(len(piece) for piece, _ in text[0][:-1])
        if all(min(len(line[-1][0]), LONGEST_DETAILS) <= room for line in text[3:]):
            break
    fitted = text[: 3 if layout.has_numbers else 2]
    heading = ""
    for (title, line), (*numbers, (remark, look)) in zip(groups, text[3:], strict=True):
        if title != heading:
            heading = title
            fitted.append([(title, line.verdict.tone if line.row else "bold")])
        fitted.append([*numbers, (_cut(remark, max(room, 1)), look)])
    hidden = []
    for number, head in enumerate(content.heads):
        if number not in layout.columns:
            hidden.append(head.column.title)
    if hidden:
        fitted += _wrapped(f"hidden at {width} columns: {', '.join(hidden)}", width)
    return fitted


def _groups(content: Table) -> Iterator[tuple[str, Line]]:
    """The lines by verdict with its title; means over seeds come last."""
    for word in (*GROUPS[-2::-1], None):  # what fails is next to the prompt
        title = f"{mark(word)} {word.value.upper() if word else 'NO VERDICT'}"
        for line in content.lines:
            if line.row is not None and line.row.conclusion.word is word:
                yield title, line
    for line in reversed(content.lines):  # from the best to the worst, as above
        if line.row is None:
            yield "MEAN OVER SEEDS", line


def _laid_out(content: Table, layout: _Layout) -> list[Text]:
    """Letters, titles, thresholds and all lines; the cells of a column have one width."""
    names = []
    for line in content.lines:
        name = _without_middle(line.name, layout.longest_name)
        names.append(Cell(f"  {name} {line.seed}".rstrip()))
    below = Cell("  fails if" if layout.has_numbers else "")
    columns = [_padded([Cell(""), Cell(""), below, *names], layout, str.ljust)]
    for n in layout.columns:
        head = content.heads[n]
        cells = [line.numbers[n] for line in content.lines]
        titles = [head.key, head.column.title, head.limit]
        if n and not layout.has_numbers:
            cells = [_mark_alone(line, n) for line in content.lines]
            titles = [head.key, "", ""]
        column = [*(Cell(title, "bold") for title in titles), *cells]
        columns.append(_padded(column, layout, str.rjust))
    remarks = [Cell("")] * 3
    for line in content.lines:
        remarks.append(line.details)
    columns.append(_texts(remarks, layout.is_short))
    return list(map(list, zip(*columns, strict=True)))


def _mark_alone(line: Line, column: int) -> Cell:
    """The mark of a number, also of a plain pass; a mean has none."""
    cell = line.numbers[column]
    if cell.text[-1:] in (*MARKS, NONE):
        return Cell(cell.text[-1:], cell.tone)
    return Cell("✓" if line.row else "")


def _texts(column: Sequence[Cell], is_short: bool) -> Text:
    """The cells as text; where one ends in a mark, the others have a space in its place."""
    pieces = []
    for cell in column:
        pieces.append((is_short and cell.short) or cell.text)
    marks = tuple(MARKS)
    has_marks = any(len(piece) > 1 and piece.endswith(marks) for piece in pieces)
    text = []
    for cell, piece in zip(column, pieces, strict=True):
        space = ""
        if has_marks and not piece.endswith(marks):
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
