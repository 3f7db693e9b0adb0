"""The audit as one self-contained HTML page: no network, no fonts, no framework."""

from __future__ import annotations

from .page import html

__all__ = ["html"]
