"""What an audit raises: a failure for what it found, an error for what is wrong with its input."""

from __future__ import annotations


class AuditError(ValueError):
    """Bad input, in one sentence that says what to do; shown without a traceback."""


class AuditFailure(AssertionError):
    """A diagnostic fired, or did not although expected; the text is what a failing test shows."""

    def __init__(self, text: str, headline: str) -> None:
        super().__init__(text)
        self.headline = headline
