"""Which fixtures of the plugin a conftest, a module or a class replaces for a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def is_overridden(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether somebody replaces a fixture of the plugin for this test."""
    definition = _definition(request, name)
    return definition is not None and not definition.func.__module__.startswith("pytest_fadiag.")


def overrides(request: pytest.FixtureRequest, names: Sequence[str]) -> tuple[str, ...]:
    """What tells one set of replaced fixtures from another: the fixtures, and the test's parameters; empty without any."""
    found = [str(id(_definition(request, name))) for name in names if is_overridden(request, name)]
    indices = getattr(getattr(request.node, "callspec", None), "indices", {})
    parameters = sorted(f"{name}={index}" for name, index in indices.items() if name not in ("fa_checkpoint", "fa_diagnostic"))
    return (*found, *parameters) if found else ()


def _definition(request: pytest.FixtureRequest, name: str) -> Any:
    definitions = request.session._fixturemanager.getfixturedefs(name, request.node)
    return definitions[-1] if definitions else None
