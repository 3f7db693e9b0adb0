"""The one exception that an audit raises for what is wrong with its input."""

from __future__ import annotations


class AuditError(ValueError):
    """Says what was wrong, where, and what to do; the text is meant for the person who typed the command."""
