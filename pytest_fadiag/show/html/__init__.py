"""The audit as one self-contained HTML page: no network, no fonts, no framework."""

from __future__ import annotations

from ..audit import Audit

__all__ = ["html"]


def html(audit: Audit, version: str) -> str:
    """The audit as one HTML file; the same audit gives the same bytes. Jinja2 is imported only now."""
    from .page import page_of

    return page_of(audit, version)
