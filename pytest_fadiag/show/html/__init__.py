"""The audit as one self-contained HTML page: no network, no fonts, no framework."""

from __future__ import annotations

from ... import __version__
from ..audit import Audit

__all__ = ["cell", "html"]


def html(audit: Audit, version: str = __version__) -> str:
    """The audit as one HTML file; the same audit gives the same bytes. Jinja2 is imported only now."""
    from .page import page_of

    return page_of(audit, version)


def cell(audit: Audit) -> str:
    """The audit as the output of a notebook's cell."""
    from .page import cell_of

    return cell_of(audit)
