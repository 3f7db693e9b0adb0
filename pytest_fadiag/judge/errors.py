"""What an audit raises: a failure for what it found, an error for what is wrong with its input."""

from __future__ import annotations


class AuditFailure(AssertionError):
    """A diagnostic fired, or did not where it was expected to; the text is the report, the headline its one line."""

    def __init__(self, text: str, headline: str) -> None:
        super().__init__(text)
        self.headline = headline


class AuditError(ValueError):
    """Says what was wrong, where, and what to do; the text is meant for the person who typed the command."""


class AuditChange(AssertionError):
    """A verdict is not the one that was recorded; no :class:`AuditFailure`, so that nothing that expects one excuses it."""

    def __init__(self, text: str, headline: str) -> None:
        super().__init__(text)
        self.headline = headline
