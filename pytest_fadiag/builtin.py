"""What is built in, registered by the hooks that other packages use."""

from __future__ import annotations

from .judge.diagnostics import DIAGNOSTICS, Diagnostic


def pytest_fadiag_diagnostics() -> list[Diagnostic]:
    """The diagnostics of the protocol."""
    return list(DIAGNOSTICS)
