"""Generated tests: one collector per checkpoint, log or method, one item per diagnostic."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ..judge.diagnostics import select
from .outcome import case_of
from .plan import Job


class AuditItem(pytest.Function):
    """One test; fixtures, markers and overrides in a conftest work as for any test function."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Failures are headed by checkpoint and diagnostic."""
        return self.path, 0, f"{self.parent and self.parent.name} {self.name}"


class AuditCollector(pytest.Collector):
    """A checkpoint, a log, or a method over its seeds."""

    names: tuple[str, ...]
    body: Callable[..., None]
    job: Job | None = None

    def collect(self) -> Iterable[pytest.Item]:
        """One item per test."""
        for name in self.names:
            item: AuditItem = AuditItem.from_parent(self, name=name, callobj=self.body)
            if self.job is not None:
                case = case_of(item)
                case.job = self.job
                case.keys = tuple(diagnostic.key for diagnostic in select([name]))
                if self.job.skip:
                    item.add_marker(pytest.mark.skip(reason=self.job.skip))
            yield item


def overridden(node: Any, name: str) -> Any:
    """The definition of a fixture where a repo replaces the plugin's.

    ``None`` where it does not.
    """
    definitions = node.session._fixturemanager.getfixturedefs(name, node)
    if not definitions or definitions[-1].func.__module__.startswith("pytest_fadiag."):
        return None
    return definitions[-1]


def gives_credit(node: Any) -> bool:
    """Whether a repo's fixture gives the credit or a step of the rule."""
    return any(overridden(node, name) is not None for name in ("fa_credit", "fa_step"))
