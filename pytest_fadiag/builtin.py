"""What is built in, registered by the hooks that other packages use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from .judge.diagnostics import DIAGNOSTICS, Diagnostic
from .judge.late import named
from .show.outputs import OUTPUTS, write

if TYPE_CHECKING:
    from .show.audit import Audit

last = pluggy.HookimplMarker("pytest")(trylast=True)
"""Other packages are asked first: a lab may read its own .pt files as it likes."""


def pytest_fadiag_diagnostics() -> list[Diagnostic]:
    """The diagnostics of the protocol."""
    return list(DIAGNOSTICS)


@last
def pytest_fadiag_load_checkpoint(path: Path, unsafe: bool) -> Any:
    """A torch or safetensors file."""
    return named("pytest_fadiag.load.checkpoints:read_content")(path, unsafe=unsafe)


def pytest_fadiag_report_kinds() -> dict[str, str]:
    """The outputs of this package."""
    return {kind: output.destination for kind, output in OUTPUTS.items()}


@last
def pytest_fadiag_write_report(kind: str, audit: Audit, destination: Path) -> list[str] | None:
    """One of these."""
    return write(kind, audit, destination) if kind in OUTPUTS else None
