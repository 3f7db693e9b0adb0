"""Learning rules for the reference ResidualMLP, one file each, the training loop that they share, the credit and the single step they give."""

from __future__ import annotations

from .credit import credit
from .registry import METHODS
from .step import step

__all__ = ["METHODS", "credit", "step"]
