"""How far a measurement is, told ever more rarely."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 5.0
"""Seconds before it is told for the first time."""


def patient(tell: Callable[[str], None]) -> Callable[[int, int], None]:
    """Tells how far a measurement is after some seconds, then each time twice as late."""
    start = time.monotonic()
    next_line = PATIENCE

    def line(done: int, total: int) -> None:
        nonlocal next_line
        seconds = time.monotonic() - start
        if seconds >= next_line:
            next_line = 2 * seconds
            tell(f"{done:,} of {max(done, total):,} samples, {seconds:.0f} s")

    return line
