"""The pitfalls checklist as checks on source code: syntax trees and names, nothing of the scanned code is run."""

from __future__ import annotations

from .finding import Pitfall, Scan
from .scanner import scan

__all__ = ["Pitfall", "Scan", "scan"]
