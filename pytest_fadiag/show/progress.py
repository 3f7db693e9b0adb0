"""A line on the terminal while a long measurement runs, and no trace of it afterwards."""

from __future__ import annotations

import time
from typing import Any

from .printable import one_line

PATIENCE = 2.0
"""Seconds before anything is shown."""


class Progress:
    """Writes behind pytest's own line and takes it back; silent where the output is no terminal."""

    def __init__(self, reporter: Any, capture: Any, name: str) -> None:
        self.reporter: Any = reporter if getattr(reporter, "isatty", False) else None
        self.capture = capture
        self.name = one_line(name)
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
        space = room - len(" measuring ") - len(share)
        if space > 0:
            self._write(f"\x1b7 measuring {self.name[:space]}{share}\x1b[K\x1b8")
            self.visible = True

    def __exit__(self, *exc: object) -> None:
        if self.visible:
            self._write("\x1b[K")

    def _write(self, text: str) -> None:
        """Past pytest's own writer, which counts columns, and with its capture suspended, which holds the same file."""
        if self.capture is None:
            self._put(text)
            return
        with self.capture.global_and_fixture_disabled():
            self._put(text)

    def _put(self, text: str) -> None:
        file = self.reporter._tw._file
        file.write(text)
        file.flush()
