"""Recorded verdicts: which diagnostics of which checkpoint are known to fire, and the record renewed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..judge.diagnostics import DIAGNOSTICS, Diagnostics
from ..judge.errors import AuditError
from ..judge.files import write_atomically
from ..judge.keys import Keys
from ..judge.margins import SeedVerdict
from ..judge.report import DiagnosticReport
from ..judge.unite import united
from ..judge.wording import count
from ..show.audit import Audit, AuditRow
from ..show.document import audit_of, json_text, read_audit, read_json, reports_of
from .settings import Settings
from .targets import SEED_MARGIN

Run = tuple[str, int | None]
"""A method and its seed."""


@dataclass(frozen=True)
class Expectations:
    """The keys that are expected to fire, by checkpoint id, by method and seed, and by method; and margins over seeds."""

    path: Path
    available: Diagnostics
    by_id: Mapping[str, Keys]
    by_run: Mapping[Run, Keys]
    by_method: Mapping[str, Keys]
    margins: Mapping[str, str] = field(default_factory=dict)
    """Recorded verdicts of margins over seeds, by the names of their tests."""
    reports: Mapping[str, DiagnosticReport] = field(default_factory=dict)
    """Recorded numbers, by checkpoint id."""

    @classmethod
    def read(cls, path: Path, available: Diagnostics) -> Expectations:
        """An earlier audit JSON, or an object of methods or checkpoint ids to keys."""
        try:
            content = read_json(path)
        except AuditError as error:
            raise AuditError(f"--fa-expect: {error}") from None
        if not isinstance(content, dict):
            raise AuditError(f"--fa-expect: expected a JSON object, found {type(content).__name__}\n  {path}")
        try:
            return (cls._from_audit if "reports" in content else cls._from_mapping)(path, content, available)
        except AuditError as error:
            raise AuditError(f"--fa-expect: {error}\n  {path}") from None

    @classmethod
    def _from_audit(cls, path: Path, content: Mapping[str, Any], available: Diagnostics) -> Expectations:
        reports = reports_of(content, available)
        by_run: dict[Run, Keys] = {}
        ambiguous: set[Run] = set()
        for report in reports.values():
            run = (report.method_name, report.seed)
            if by_run.setdefault(run, report.fired) != report.fired:
                ambiguous.add(run)
        known = {run: keys for run, keys in by_run.items() if run not in ambiguous}
        rows = audit_of({**content, "reports": {}, "summary": []}).margins
        margins = {row.name: row.margin.verdict.value for row in rows if row.margin is not None}
        return cls(path, available, {name: report.fired for name, report in reports.items()}, known, {}, margins, reports)

    @classmethod
    def _from_mapping(cls, path: Path, content: Mapping[str, Any], available: Diagnostics) -> Expectations:
        ending = f"::{SEED_MARGIN}"
        margins = {name.removesuffix(ending): _verdict(name, content[name]) for name in content if name.endswith(ending)}
        keys = {name: _keys(name, value, available) for name, value in content.items() if not name.endswith(ending)}
        return cls(path, available, keys, {}, keys, margins)

    def of(self, checkpoint: str, method: str, seed: int | None) -> Keys:
        """The keys that are expected to fire for a checkpoint; one that the file does not know is an error."""
        if checkpoint in self.by_id:
            return self.by_id[checkpoint]
        if (method, seed) in self.by_run:
            return self.by_run[method, seed]
        if method in self.by_method:
            return self.by_method[method]
        seeded = "" if seed is None else f", seed {seed}"
        raise AuditError(
            f"{checkpoint} (method {method}{seeded}) is not recorded in {self.path.name}, so that its verdict cannot be "
            "compared: record it there (--fa-update-expect), or leave it out of this run"
        )

    def recorded(self, checkpoint: str, method: str, seed: int | None) -> DiagnosticReport | None:
        """The numbers that were recorded of a checkpoint, by its id, else by its method and seed where that is one."""
        if checkpoint in self.reports:
            return self.reports[checkpoint]
        same = [report for report in self.reports.values() if (report.method_name, report.seed) == (method, seed)]
        return same[0] if len(same) == 1 else None

    def unrecorded(self, checkpoint: str, method: str, seed: int | None) -> set[str]:
        """The diagnostics of which the record of a checkpoint says nothing: its own run was not asked for them.

        Letters tell of the usual diagnostics, and of another one where it is among the letters of anything.
        """
        report = self.recorded(checkpoint, method, seed)
        if report is not None:
            return {d.key for d in self.available if d.name not in report.diagnostics}
        named = {key for keys in (*self.by_id.values(), *self.by_method.values()) for key in keys}
        return {d.key for d in self.available if d not in DIAGNOSTICS.by_default and d.key not in named}

    def absent(self, known: Sequence[tuple[str, str, int | None]]) -> list[str]:
        """The recorded checkpoints, by id, that a run does not have under their id or as the same method and seed.

        Of a record of letters, the methods too, such as one that is misspelt there.
        """
        ids, runs = {name for name, _, _ in known}, {(method, seed) for _, method, seed in known}
        there = {name for name, report in self.reports.items() if (report.method_name, report.seed) in runs}
        there.update(method for _, method, _ in known if not self.reports)
        return [name for name in self.reports or self.by_id if name not in ids and name not in there]


SHORT = "SHORT"
"""A margin over seeds of which only the letters of its seeds are recorded: it does not pass."""


def short_by_letters(expected: Sequence[Keys | None]) -> str | None:
    """What the expected letters of the seeds say of their margin: that it falls short where each has a d."""
    return SHORT if expected and all("d" in (keys or Keys()) for keys in expected) else None


def _verdict(name: str, value: Any) -> str:
    known = [verdict.value for verdict in SeedVerdict]
    if value not in known:
        raise AuditError(f"{name!r} is {json.dumps(value)}; expected {', '.join(known)}")
    return str(value)


def _keys(name: str, value: Any, available: Diagnostics) -> Keys:
    if not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(key, str) for key in value)):
        raise AuditError(
            f'{name!r} is {json.dumps(value)}; expected the keys that fire, such as "abd" or ["a", "my-name"], or "" for none'
        )
    return Keys.of(diagnostic.key for diagnostic in available.select(value)) if value else Keys()


def renew(settings: Settings, audit: Audit) -> str:
    """Write the file of --fa-expect and say what was done; what this run did not audit keeps its record, never half of it."""
    path = settings.path("expect", settings.expect or "")
    broken = [row.checkpoint for row in audit.rows if row.report is None or {"error", "not run"} & set(row.outcomes.values())]
    broken += [f"{row.name}::{SEED_MARGIN}" for row in audit.margins if row.outcome in ("error", "not run")]
    if broken:
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        raise AuditError(f"{broken[0]}{more} could not be audited\n  {path}")
    if not audit.rows:
        raise AuditError(f"nothing was audited\n  {path}")
    before = check_record(path)
    is_letters = before is not None and "reports" not in before
    text = _letters(before or {}, audit, settings.available) if is_letters else ""
    text = text or json_text(_with_earlier(path, audit, settings.available) if before else audit)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.resolve(), text)
    return f"FA audit: {count(len(audit.rows), 'row')} recorded in {path}"


def check_update(settings: Settings) -> None:
    """Recording what is found needs a file, and must be meant: on CI it would turn every change green."""
    if not settings.updates_expect:
        return
    if settings.expect is None:
        raise AuditError("--fa-update-expect: name the file to write with --fa-expect=FILE")
    if os.environ.get("CI", "").lower() not in ("", "0", "false") and not settings.update_expect_on_ci:
        raise AuditError(
            "--fa-update-expect: refused, since CI is set and a record renewed there would hide every change; renew it on your "
            "machine, or say --fa-update-expect-on-ci"
        )
    try:
        check_record(settings.path("expect", settings.expect))
    except AuditError as error:
        raise AuditError(f"--fa-update-expect: {error}") from None


def check_record(path: Path) -> dict[str, Any] | None:
    """What is recorded so far; a file that is no record is not overwritten."""
    if path.is_dir():
        raise AuditError(f"is a folder; name the file to write in it\n  {path}")
    if not path.exists():
        return None
    try:
        content = read_json(path)
    except AuditError as error:
        raise AuditError(f"the file there is no record, so it is not overwritten: {error}") from None
    if not isinstance(content, dict):
        raise AuditError(f"the file there is no record, so it is not overwritten\n  {path}")
    return content


def _with_earlier(path: Path, audit: Audit, available: Diagnostics) -> Audit:
    """The audit, and the rows of an earlier one that this run left out."""
    earlier = read_audit(path, available)
    before = {row.checkpoint: row for row in earlier.rows}
    now, margins = {row.checkpoint for row in audit.rows}, {row.name for row in audit.margins}
    rows = [_with_unasked(row, before.get(row.checkpoint)) for row in audit.rows]
    rows += [row for row in earlier.rows if row.checkpoint not in now]
    kept = [*audit.margins, *(row for row in earlier.margins if row.name not in margins)]
    return replace(
        audit,
        rows=sorted(rows, key=lambda row: row.place),
        margins=sorted(kept, key=lambda row: row.name),
        checklist=audit.checklist or earlier.checklist,
    )


def _with_unasked(row: AuditRow, earlier: AuditRow | None) -> AuditRow:
    """A row, and of its earlier record the diagnostics that this run was not asked for."""
    if row.report is None or earlier is None or earlier.report is None:
        return row
    return replace(row, report=united(row.report, earlier.report), outcomes={**earlier.outcomes, **row.outcomes})


def _letters(before: Mapping[str, Any], audit: Audit, available: Diagnostics) -> str:
    """A record of letters: a row that differs from its entry, or its method's, gets one of its own; the others stay."""
    after = dict(before)
    expected: dict[str, list[Keys]] = {}
    for row in audit.rows:
        recorded = before.get(row.checkpoint, before.get(row.method))
        known = None if recorded is None else _keys(row.checkpoint, recorded, available)
        letters = _letters_of(row, known)
        if letters != known:
            after[row.checkpoint] = list(letters) if isinstance(recorded, list) else letters
        expected.setdefault(row.group or "", []).append(letters)
    for margin in audit.margins:
        if margin.margin is None:
            continue
        key, verdict = f"{margin.name}::{SEED_MARGIN}", margin.margin.verdict.value
        short = short_by_letters(expected.get(margin.name, [])) is not None
        if key in before or verdict == "INCONCLUSIVE" or short != (verdict == "FIRE"):
            after[key] = verdict
    return json.dumps(after, indent=1, ensure_ascii=False) + "\n"


def _letters_of(row: AuditRow, recorded: Keys | None) -> Keys:
    """What fires, and of what was not judged in this run what was recorded; nothing is made up of what nobody judged."""
    assert row.report is not None
    letters: list[str] = []
    findings = {finding.key: finding for finding in row.report.findings}
    for diagnostic in row.report.available:
        key = diagnostic.key
        ran = key in findings and row.outcomes.get(key, "not run" if row.outcomes else "passed") != "not run"
        if ran and findings[key].measured:
            letters += [key] * findings[key].fired
        elif recorded is not None:
            letters += [key] * (key in recorded)
        elif not ran and diagnostic in DIAGNOSTICS.by_default:
            raise AuditError(f"{row.checkpoint}: {diagnostic.name} was not run, and nothing is recorded of it; run all of them")
    return Keys.of(letters)
