"""A line on the terminal while a long measurement runs, and no trace of it afterwards."""

from __future__ import annotations

import time
from typing import Any

PATIENCE = 2.0
"""Seconds before anything is shown."""


class Progress:
    """Writes behind pytest's own line and takes it back; silent where the output is no terminal."""

    def __init__(self, reporter: Any, name: str) -> None:
        self.reporter = reporter if reporter is not None and getattr(reporter, "isatty", False) else None
        self.name = name
        self.began = self.shown = time.monotonic()
        self.visible = False

    def __enter__(self) -> Progress:
        return self

    def __call__(self, done: int, total: int) -> None:
        """Show how far the measurement is, ten times a second at most."""
        now = time.monotonic()
        if self.reporter is None or now - self.began < PATIENCE or now - self.shown < 0.1:
            return
        self.shown = now
        share = f" {100 * done // total} %" if total else f" {done:,} samples"
        writer = self.reporter._tw
        room = writer.fullwidth - writer.width_of_current_line - 2
        text = f" measuring {self.name}{share}"
        if room > 10:
            self._write(f"\x1b7{text[:room]}\x1b[K\x1b8")
            self.visible = True

    def __exit__(self, *exc: object) -> None:
        if self.visible:
            self._write("\x1b[K")

    def _write(self, text: str) -> None:
        """Past pytest's own writer, which counts columns, and past its capture, which holds another file."""
        assert self.reporter is not None
        file = self.reporter._tw._file
        file.write(text)
        file.flush()
