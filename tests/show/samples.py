"""What tests of several outputs share."""

from __future__ import annotations

from typing import Any

from pytest_fadiag.show.audit import Audit, Row, united

EVIL = "<b></script>&amp;`|*[x](y)@all\x1b[31m\u202e$\\frac$\\"
"""Markup of every output, a terminal's escape, a character that turns the direction."""


def of(*rows: Row, **rest: Any) -> Audit:
    """An audit in the order of its table."""
    return Audit(united(rows), **rest)
