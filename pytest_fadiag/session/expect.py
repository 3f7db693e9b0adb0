"""Recorded verdicts: which diagnostics of which checkpoint are known to fire."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..protocol.diagnostics import DIAGNOSTICS, select
from ..protocol.errors import AuditError
from ..protocol.report import DiagnosticReport


@dataclass(frozen=True)
class Expectations:
    """The keys that are expected to fire, by checkpoint id and by method and seed."""

    path: Path
    by_id: Mapping[str, str]
    by_run: Mapping[tuple[str, int | None], str]
    by_method: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> Expectations:
        """An earlier audit JSON, or an object of methods or checkpoint ids to keys."""
        try:
            content = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise pytest.UsageError(f"--fa-expect: cannot be read: {error.strerror or error}\n  {path}") from None
        except ValueError as error:
            raise pytest.UsageError(f"--fa-expect: not JSON: {error}\n  {path}") from None
        if not isinstance(content, dict):
            raise pytest.UsageError(f"--fa-expect: expected a JSON object, found {type(content).__name__}\n  {path}")
        try:
            return cls._from_audit(path, content) if "reports" in content else cls._from_mapping(path, content)
        except (AuditError, TypeError, KeyError, AttributeError) as error:
            raise pytest.UsageError(f"--fa-expect: {error}\n  {path}") from None

    @classmethod
    def _from_audit(cls, path: Path, content: Mapping[str, Any]) -> Expectations:
        reports = {name: DiagnosticReport.from_dict(values) for name, values in content["reports"].items()}
        return cls(
            path,
            {name: report.fired for name, report in reports.items()},
            {(report.method_name, report.seed): report.fired for report in reports.values()},
            {},
        )

    @classmethod
    def _from_mapping(cls, path: Path, content: Mapping[str, Any]) -> Expectations:
        keys = {name: "".join(d.key for d in select(value)) if value else "" for name, value in content.items()}
        return cls(path, keys, {}, keys)

    def of(self, checkpoint: str, method: str, seed: int | None) -> str:
        """The keys that are expected to fire for a checkpoint; one that the file does not know is an error."""
        for known, name in ((self.by_id, checkpoint), (self.by_run, (method, seed)), (self.by_method, method)):
            if name in known:
                return known[name]  # type: ignore[index]
        raise AuditError(
            f"{checkpoint} (method {method}, seed {seed}) is not recorded in {self.path.name}: "
            "record it there, so that its verdict is known"
        )


def spelled(keys: str) -> str:
    """The names behind keys, for messages: residual-growth, frozen-margin."""
    return ", ".join(diagnostic.name for diagnostic in DIAGNOSTICS if diagnostic.key in keys) or "nothing"
