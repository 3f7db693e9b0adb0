"""Generated tests: one collector per checkpoint, log or method, one item per diagnostic."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ..judge.diagnostics import get
from .outcome import JOB, ROW, row_of
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
            diagnostic = get(name)
            if self.job is not None and diagnostic is not None:
                item.stash[JOB], item.stash[ROW] = self.job, row_of(self.job, [diagnostic.key])
                if self.job.skip:
                    item.add_marker(pytest.mark.skip(reason=self.job.skip))
            yield item


def overridden(node: Any, name: str) -> Any:
    """The definition of a fixture where a repo replaces the plugin's.

    ``None`` where it does not.
    """
    definitions = node.session._fixturemanager.getfixturedefs(name, node)
    last = definitions[-1] if definitions else None
    return None if last is None or last.func.__module__.startswith("pytest_fadiag.") else last
