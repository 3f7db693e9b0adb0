"""Numbers and lists as every report and table writes them."""

from __future__ import annotations

import codecs
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")
WIDTH = 100
"""Where the text of a report is wrapped."""
SIDE_BY_SIDE = 8
"""How many states of the stream a table has in a row."""


def sig(value: float) -> str:
    """Three significant digits, powers of ten where these are shorter: 1.40, 255, 2.8e3, 1.3e-8."""
    if math.isnan(value):
        return "undefined"
    if math.isinf(value) or value == 0:
        return _typeset(f"{value:g}")
    if 0.01 <= abs(value) < 999.5:
        return _typeset(f"{value:#.3g}".rstrip("."))
    return _typeset(f"{value:.1e}")


def pp(value: float) -> str:
    """Percentage points, always with their sign: +1.40."""
    return _typeset(f"{value:+.2f}")


def fraction(value: float, digits: int = 4) -> str:
    """An accuracy or R²: 0.8902, −0.0410."""
    return _typeset(f"{value:.{digits}f}")


def cosine(value: float) -> str:
    """A cosine with its sign only where it is negative: 0.060, −0.058."""
    if not math.isfinite(value):
        return sig(value)
    return _typeset(f"{value:.3f}")


def signed_cosine(value: float, digits: int = 3) -> str:
    """A cosine whose sign matters: +0.437, −0.058."""
    if not math.isfinite(value):
        return sig(value)
    return _typeset(f"{value:+.{digits}f}")


def limit(value: float) -> str:
    """A threshold as it is typed: 50, 0.3, 1e-7."""
    return _typeset(f"{value:g}")


def distinct(show: Callable[[float], str], value: float, threshold: float) -> str:
    """A value with as many digits as it takes to differ from its threshold."""
    text = show(value)
    if not math.isfinite(value) or float(text.replace("−", "-")) != threshold:
        return text
    sign = "+" if text[0] in "+−" else ""
    for digits in range(3, 18):
        longer = f"{value:{sign}.{digits}g}"
        if float(longer) != threshold:
            return _typeset(longer)
    return text


def interval(low: float, high: float) -> str:
    """A 95 % interval in pp, with as many digits as it takes to see whether it includes 0."""
    return f"95 % CI [{distinct(pp, low, 0.0)}, {distinct(pp, high, 0.0)}]"


def plural(number: int, noun: str, several: str | None = None) -> str:
    """A number with its noun: 1 sample, 1,280 samples."""
    if number == 1:
        return f"{number} {noun}"
    return f"{number:,} {several or noun + 's'}"


def join_and(parts: Iterable[str]) -> str:
    """Words in a row: a, b and c; nothing for none."""
    words = list(parts)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def and_more(names: Sequence[str], maximum: int = 3) -> str:
    """The first names of many: a, b, c and 4 more."""
    if len(names) <= maximum:
        return join_and(names)
    return join_and([*names[:maximum], f"{len(names) - maximum} more"])


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """The values of each key, in the order in which they come."""
    groups: dict[Key, list[Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def fold(prefix: str, lines: Iterable[str], width: int = WIDTH) -> list[str]:
    """Lines wrapped at a width, each begun with the prefix, their continuations indented."""
    hang = " " * (len(prefix) - len(prefix.lstrip()) + 2)
    wrapper = textwrap.TextWrapper(
        width, prefix, hang, expand_tabs=False, break_long_words=False, break_on_hyphens=False
    )
    folded: list[str] = []
    for line in lines:
        folded += wrapper.wrap(line) or [prefix.rstrip()]
    return folded


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells in columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0] = row[0].strip().ljust(widths[0])
        lines.append("  ".join(cells).rstrip())
    return lines


def by_state(states: Sequence[str], rows: Mapping[str, Sequence[str]]) -> list[str]:
    """A small table with one column per state, wrapped; rows of another length are left out."""
    complete = [(name, row) for name, row in rows.items() if len(row) == len(states)]
    lines: list[str] = []
    for start in range(0, len(states), SIDE_BY_SIDE):
        part = slice(start, start + SIDE_BY_SIDE)
        cells = [["", *states[part]]]
        for name, row in complete:
            cells.append([name, *row[part]])
        lines += table(cells)
    return lines


def printable(text: str) -> str:
    """The text with control and other invisible characters as escapes; line breaks stay."""
    return "\n".join(map(_visible, text.split("\n")))


def one_line(text: str) -> str:
    """The text on one line, line breaks escaped too."""
    return printable(text).replace("\n", "\\n")


def _visible(text: str) -> str:
    if len(text) > 1 and not text.isprintable():
        return "".join(map(_visible, text))
    if text.isprintable():
        return text
    return text.encode("unicode_escape").decode("ascii")


def _typeset(text: str) -> str:
    """A true minus before the digits, no padding in the exponent: −1.3e-8."""
    text = re.sub(r"e\+?(-?)0*(\d)", r"e\1\2", text)
    if text.startswith("-"):
        return f"−{text[1:]}"
    return text


SPELLINGS = {
    **dict(zip("‖✗✓–−×·•█░", "|x+--x-*#-", strict=True)),
    **{"≤": "<=", "≥": ">=", "→": "->", "…": "...", "±": "+/-", "Γ": "Gamma", "λ": "lambda"},
}
"""How a terminal without these characters shows them."""


def in_ascii(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding lacks: a handler of :mod:`codecs`."""
    assert isinstance(error, UnicodeEncodeError)
    text = ""
    for character in error.object[error.start : error.end]:
        text += SPELLINGS.get(character, character.encode("ascii", "backslashreplace").decode())
    return text, error.end


ASCII = "fadiag"
"""The name of this handler."""
codecs.register_error(ASCII, in_ascii)
