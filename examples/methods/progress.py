"""What a person sees while a network trains: a bar on a terminal, one line an epoch elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 20


class Progress:
    """Writes to stderr, so that stdout stays for results."""

    def __init__(self, title: str, epochs: int, file: TextIO | None = None) -> None:
        self.title, self.epochs, self.file = title, epochs, file or sys.stderr
        self.live = self.file.isatty()
        self.status = ""
        self.began = self.drawn = time.monotonic()

    def step(self, epoch: int, share: float) -> None:
        """Redraw the bar, at most ten times a second."""
        now = time.monotonic()
        if self.live and now - self.drawn >= 0.1:
            self.drawn = now
            full = int(WIDTH * share)
            self._write(
                f"\r\x1b[K{self.title} {epoch}/{self.epochs} [{'█' * full}{'░' * (WIDTH - full)}]{self.status}"
            )

    def epoch(self, epoch: int, status: str) -> None:
        """Close an epoch with its numbers."""
        now = time.monotonic()
        self.status = f" {status}"
        line = f"{self.title} {epoch}/{self.epochs}{self.status} {now - self.began:.1f} s"
        self._write(f"\r\x1b[K{line}" if self.live else f"{line}\n")
        self.began = now

    def close(self) -> None:
        """Leave the last line standing."""
        if self.live:
            self._write("\n")

    def _write(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()
