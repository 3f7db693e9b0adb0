"""Recorded findings: which diagnostics of which checkpoint or method are known to fire, and the
record written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..files import read_json, write_atomically
from ..judge.diagnostics import letters, select
from ..judge.errors import AuditError
from ..judge.seed_margins import SeedVerdict
from ..judge.words import grouped, plural
from ..show.audit import Audit, Keys, Outcome, Row
from .plan import SEED_MARGIN

ENDING = f"::{SEED_MARGIN}"
NOT_JUDGED = {Outcome.ERROR, Outcome.NOT_RUN}


class Expectations(msgspec.Struct, frozen=True):
    """The keys that are expected to fire, by checkpoint id or method, and verdicts of margins over
    seeds by name.

    >>> record = Expectations.parse({"dfa": "abd", "dfa::seed-margin": "FIRE"})
    >>> record.expected_keys("runs/dfa_s42.pt", "dfa")
    ('a', 'b', 'd')
    """

    keys: dict[str, Keys] = {}
    margins: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> Expectations:
        """The record in a file."""
        try:
            return cls.parse(read_json(path))
        except AuditError as error:
            raise AuditError(f"--fa-expect: {error}\n  {path}") from None

    @classmethod
    def parse(cls, content: Any) -> Expectations:
        """A JSON object of letters and verdicts."""
        if not isinstance(content, dict):
            raise AuditError(f"expected a JSON object, not a {type(content).__name__}")
        keys: dict[str, Keys] = {}
        margins: dict[str, str] = {}
        for name, value in content.items():
            if name.endswith(ENDING):
                if value not in list(SeedVerdict):
                    raise AuditError(f"{name!r}: expected {', '.join(SeedVerdict)}, not {value!r}")
                margins[name.removesuffix(ENDING)] = str(value)
            elif value == "":
                keys[name] = ()
            elif isinstance(value, str):
                keys[name] = tuple(diagnostic.key for diagnostic in select(value))
            else:
                raise AuditError(
                    f'{name!r}: expected the keys that fail, such as "abd", or "" for none, not '
                    f"{value!r}"
                )
        return cls(keys, margins)

    def expected_keys(self, checkpoint: str, method: str) -> Keys:
        """What is expected to fire; of what is not listed, nothing is."""
        return self.keys.get(checkpoint, self.keys.get(method, ()))

    def updated(self, audit: Audit) -> dict[str, str]:
        """The record with what an audit found; what was not judged keeps its entry."""
        _check_judged(audit)
        record = {name: letters(keys) for name, keys in self.keys.items()}
        rows_by_method = grouped((row.method, row) for row in audit.rows)
        for method, rows in rows_by_method.items():
            record |= self._changes(method, rows)
        margins = dict(self.margins)
        for margin in audit.margins:
            if margin.verdict not in (None, self.margins.get(margin.name, "PASS")):
                margins[margin.name] = str(margin.verdict)
        return record | {f"{name}{ENDING}": verdict for name, verdict in margins.items()}

    def _changes(self, method: str, rows: Sequence[Row]) -> dict[str, str]:
        """The entries of one method: its own where all its networks agree and none is listed."""
        entries = {row.checkpoint: self._fired(row) for row in rows}
        is_listed = method in self.keys or not self.keys.keys().isdisjoint(entries)
        if not is_listed and len(set(entries.values())) == 1:
            return {method: self._fired(rows[0])}
        changes = {}
        for name, keys in entries.items():
            if keys != letters(self.expected_keys(name, method)):
                changes[name] = keys
        return changes

    def _fired(self, row: Row) -> str:
        """What fired, and of what did not run what was recorded."""
        verdict = row.conclusion
        keys = [*verdict.fired]
        for key in self.expected_keys(row.checkpoint, row.method):
            if key not in (*verdict.fired, *verdict.passed, *verdict.unmeasured):
                keys.append(key)
        return letters(keys)


def _check_judged(audit: Audit) -> None:
    """Refuse to record an audit of which a test did not run or is an error."""
    for row in audit.rows:
        if not NOT_JUDGED.isdisjoint(row.outcomes.values()):
            raise AuditError(f"{row.checkpoint} was not judged")
    for margin in audit.margins:
        if margin.outcome in NOT_JUDGED:
            raise AuditError(f"{margin.name}{ENDING} was not judged")


def check_update(path: Path | None) -> None:
    """Recording what is found needs a file and a person: on CI it would turn every change green."""
    if path is None:
        raise AuditError("--fa-update-expect: name the file to write with --fa-expect=FILE")
    if os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise AuditError(
            "--fa-update-expect: refused where CI is set; update the record on your machine"
        )
    if path.exists():
        Expectations.read(path)


def update(path: Path | None, audit: Audit) -> str:
    """Write the record whole, or not at all, and say so."""
    assert path is not None
    record = Expectations.read(path) if path.exists() else Expectations()
    text = json.dumps(record.updated(audit), indent=1, ensure_ascii=False)
    write_atomically(path.resolve(), f"{text}\n")
    return f"{plural(len(audit.rows), 'result')} recorded in {path}"
