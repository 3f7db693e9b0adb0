"""Which diagnostics a test is for where no marker says so, by what a repo's fixtures give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.keys import Keys
from ..load.recording import records_credit
from .settings import with_alignment
from .targets import Kind, Target

if TYPE_CHECKING:
    from .run import Run

CREDIT_FIXTURE = "fa_credit"


def asked_keys(run: Run, node: pytest.Item | pytest.Collector) -> Keys:
    """The diagnostics of the run; where nobody names any and a conftest gives the method's credit, that of the credit too."""
    keys = run.settings.diagnostics
    return keys if run.settings.chooses or not credit_is_given(node) else with_alignment(keys)


def asked_of(run: Run, session: pytest.Session, target: Target) -> Keys:
    """The diagnostics of a generated test: of a log whose recorder was given the method's credit, that of the credit too."""
    keys = asked_keys(run, session)
    recorded = target.kind is Kind.LOG and not run.settings.chooses and records_credit(Path(target.path))
    return with_alignment(keys) if recorded else keys


def credit_is_given(node: pytest.Item | pytest.Collector) -> bool:
    """Whether a conftest gives the method's credit to the tests of a node."""
    return override_of(node, CREDIT_FIXTURE) is not None


def override_of(node: pytest.Item | pytest.Collector, name: str) -> Any:
    """The definition of a fixture where somebody replaces the plugin's for a node, else nothing."""
    definitions = node.session._fixturemanager.getfixturedefs(name, node)
    last = definitions[-1] if definitions else None
    return None if last is None or last.func.__module__.startswith("pytest_fadiag.") else last
