"""Learning rules for the reference ResidualMLP, one file each, the training loop that they share, and the credit they give."""

from __future__ import annotations

from .credit import credit
from .registry import METHODS

__all__ = ["METHODS", "credit"]
