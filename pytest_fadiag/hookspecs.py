"""What other packages can add to an audit; each hook is optional, and an implementation takes only the arguments it needs.

A package names a module with such functions in the entry-point group ``pytest_fadiag``: tests and :func:`pytest_fadiag.audit`
then know the same. In pytest any plugin and the conftest.py of the root folder can have them too (marked
``@pytest.hookimpl(optionalhook=True)``, so that they do no harm where this plugin is not installed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from .judge.diagnostics import Diagnostic

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def pytest_fadiag_diagnostics() -> Sequence[Diagnostic]:
    """Diagnostics of the package; a name given twice is an error. Import no torch here: observers are named by their place."""
    raise NotImplementedError
