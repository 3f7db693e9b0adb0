"""How far a measurement is: one line that is rewritten on a terminal, else a few lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE = 2.0
"""Seconds before the first line where lines stay."""
BAR = 10
"""Characters of a bar."""
Progress = Callable[[str, int, int], None]
"""Takes the phase, and how many of how many of its parts are done."""


def patient(tell: Callable[[str], None]) -> Progress:
    """Tells the phase after two seconds, then each time twice as late.

    >>> patient(print)("probes", 1, 2)
    """
    start = time.monotonic()
    next_line = PATIENCE

    def step(phase: str, done: int, total: int) -> None:
        nonlocal next_line
        seconds = time.monotonic() - start
        if seconds >= next_line:
            next_line = 2 * seconds
            tell(f"{phase}, {done:,} of {max(done, total):,}, {seconds:.0f} s")

    return step


class Line:
    """One line of a terminal that every step rewrites and that is cleared in the end."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self.is_written = False

    def of(self, name: str) -> Progress:
        """What shows the steps of one network: «dfa_s42.pt  depth  ####------  0:07»."""
        start = time.monotonic()

        def step(phase: str, done: int, total: int) -> None:
            minutes, seconds = divmod(int(time.monotonic() - start), 60)
            bar = "#" * (BAR * done // max(done, total, 1))
            text = f"{name}  {phase:<12} {bar:-<{BAR}}  {minutes}:{seconds:02}"
            self.is_written = True
            self._write(text[:78])

        return step

    def clear(self) -> None:
        """Leave the line empty, if anything was written there."""
        if self.is_written:
            self._write("")

    def _write(self, text: str) -> None:
        self.file.write(f"\r\x1b[2K{text}")
        self.file.flush()


@contextmanager
def shown(progress: Progress | bool | None) -> Iterator[Callable[[str], Progress | None]]:
    """What shows the progress of a network of some name: the caller's own function, else stderr."""
    if callable(progress):
        yield lambda name: progress
    elif progress is False:
        yield lambda name: None
    elif sys.stderr.isatty():
        line = Line(sys.stderr)
        try:
            yield line.of
        finally:
            line.clear()
    else:
        yield lambda name: patient(lambda text: print(f"fadiag: {name}: {text}", file=sys.stderr))
