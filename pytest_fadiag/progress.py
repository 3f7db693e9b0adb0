"""How far a measurement is, told ever more rarely."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 5.0
"""Seconds before it is told for the first time."""


def patient(tell: Callable[[str], None]) -> Callable[[int, int], None]:
    """Tells how far a measurement is after some seconds, then each time twice as late."""
    start, due = time.monotonic(), PATIENCE

    def line(done: int, total: int) -> None:
        nonlocal due
        taken = time.monotonic() - start
        if taken >= due:
            due = 2 * taken
            tell(f"{done:,} of {max(done, total):,} samples, {taken:.0f} s")

    return line
