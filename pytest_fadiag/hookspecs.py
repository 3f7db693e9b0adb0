"""What other packages can add to an audit; each hook is optional, and an implementation takes only the arguments it needs.

A package names a module with such functions in the entry-point group ``pytest_fadiag``: tests and :func:`pytest_fadiag.audit`
then know the same. In pytest any plugin and the conftest.py of the root folder can have them too (marked
``@pytest.hookimpl(optionalhook=True)``, so that they do no harm where this plugin is not installed).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from .judge.diagnostics import Diagnostic
    from .load.checkpoints import Checkpoint
    from .load.data import DataSet
    from .show.audit import Audit

hookspec = pluggy.HookspecMarker("pytest")


@hookspec
def pytest_fadiag_diagnostics() -> Sequence[Diagnostic]:
    """Diagnostics of the package; a name given twice is an error. Import no torch here: observers are named by their place."""
    raise NotImplementedError


@hookspec(firstresult=True)
def pytest_fadiag_load_checkpoint(path: Path, unsafe: bool) -> Checkpoint | Mapping[str, object] | None:
    """What a checkpoint file holds, or ``None`` for a file of another format; asked before the built-in reader.

    A mapping is taken as ``torch.load`` gives it: tensors by name, or ``state_dict`` beside ``config``, ``test_acc``, ``Bs``.
    Run no code from the file unless ``unsafe``.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def pytest_fadiag_load_data(spec: str, base: Path) -> DataSet | tuple[object, object] | None:
    """The test data behind a SPEC that is none of the built-in kinds, or ``None`` for another package's.

    ``base`` is the folder at which its relative paths start. A ``DataSet`` with a ``digest`` lets results be kept.
    """
    raise NotImplementedError


@hookspec
def pytest_fadiag_report_kinds() -> Mapping[str, str]:
    """The kinds of ``--fa-report`` that the package writes, each with where it goes if no destination is named."""
    raise NotImplementedError


@hookspec(firstresult=True)
def pytest_fadiag_write_report(kind: str, audit: Audit, destination: Path) -> Sequence[str] | None:
    """Write an audit, and give what there is to say of it (often nothing, ``[]``); ``None`` for a kind of another package."""
    raise NotImplementedError
