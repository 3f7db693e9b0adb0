"""Which diagnostics a test is for where no marker says so, by what a repo's fixtures give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.diagnostics import ALL, DepthUtility, Diagnostic, unasked
from ..judge.keys import Keys
from ..load.recording import records_credit
from .settings import MARKER, marked, with_alignment
from .targets import Kind, Target

if TYPE_CHECKING:
    from .run import Run

CREDIT_FIXTURE = "fa_credit"
CONTROL_FIXTURE = "fa_frozen_baseline"


def asked_keys(run: Run, node: pytest.Item | pytest.Collector) -> Keys:
    """The diagnostics that the run names; where it names none, those that go by what there is, a control or a credit."""
    return run.settings.diagnostics if run.settings.chooses else unasked_keys(run, node)


def asked_of(run: Run, session: pytest.Session, target: Target) -> Keys:
    """The diagnostics of a generated test, where no argument names one.

    Where the run names none: of a recorded row, those that it had; of a log, none that needs states, and that of the credit
    where its recorder was given the method's.
    """
    keys = asked_keys(run, session)
    if run.settings.chooses or target.kind is Kind.CHECKPOINT:
        return keys
    if target.kind is Kind.RECORDED:
        return keys if target.keys is None else target.keys
    unprobed = Keys.of(key for key in keys if key != DepthUtility.key)
    return with_alignment(unprobed) if records_credit(Path(target.path)) else unprobed


def unasked_keys(run: Run, node: pytest.Item | pytest.Collector) -> Keys:
    """The diagnostics that run for a node where nobody says which: options, ini file and conftest tell what there is.

    A run that chooses its diagnostics asks for (e) by name or not at all.
    """
    control = bool(run.settings.frozen) or override_of(node, CONTROL_FIXTURE) is not None or run.settings.chooses
    credit = run.settings.credit is not None or override_of(node, CREDIT_FIXTURE) is not None
    return Keys.of(diagnostic.key for diagnostic in unasked(run.settings.available, control=control, credit=credit))


def is_named(run: Run, node: pytest.Item, diagnostic: Diagnostic, path: str) -> bool:
    """Whether somebody asks for a diagnostic by its key or name: a marker, the options, or an argument; «all» names none."""
    written = [mark.kwargs["diagnostics"] for mark in node.iter_markers(MARKER) if "diagnostics" in mark.kwargs]
    if written:
        return written[0] != ALL and diagnostic.key in marked(node)["diagnostics"]
    if diagnostic.name in ((run.targets.only or {}).get(path) or ()):
        return True
    settings = run.settings
    return settings.chooses and not settings.everything and diagnostic.key in settings.diagnostics


def override_of(node: pytest.Item | pytest.Collector, name: str) -> Any:
    """The definition of a fixture where somebody replaces the plugin's for a node, else nothing."""
    definitions = node.session._fixturemanager.getfixturedefs(name, node)
    last = definitions[-1] if definitions else None
    return None if last is None or last.func.__module__.startswith("pytest_fadiag.") else last
