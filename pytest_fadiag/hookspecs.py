"""What other packages can add to an audit; a hook takes only the arguments it names.

A package names a module with such functions in the entry-point group ``pytest_fadiag``; in pytest
any plugin and the conftest.py of the root folder can have them too, marked
``@pytest.hookimpl(optionalhook=True)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from .judge.diagnostics.base import Diagnostic
    from .load.data import DataSet
    from .measure.types import Metric
    from .show.outputs import Output

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def pytest_fadiag_diagnostics() -> Sequence[Diagnostic]:  # type: ignore[empty-body]
    """Diagnostics of the package, each with a name such as ``my-check``; import no torch here."""


@hookspec
def pytest_fadiag_metrics() -> Mapping[str, Callable[[Any], Metric]]:  # type: ignore[empty-body]
    """What measures the ``needs`` of these diagnostics: name → function of the source."""


@hookspec(firstresult=True)
def pytest_fadiag_load_checkpoint(path: Path, unsafe: bool) -> Mapping[str, Any] | None:
    """What a file holds, as ``torch.load`` would give it; ``None`` for a file of another format.

    Run no code from the file unless ``unsafe``.
    """


@hookspec(firstresult=True)
def pytest_fadiag_load_data(spec: str, base: Path) -> DataSet | None:
    """The test data that a SPEC of the package names; relative paths start at ``base``."""


@hookspec
def pytest_fadiag_outputs() -> Mapping[str, Output]:  # type: ignore[empty-body]
    """Kinds of ``--fa-report`` that the package writes."""
