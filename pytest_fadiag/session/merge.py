"""Audits of several machines as one: their rows judged again, each checkpoint once, contradictions refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest

from ..outputs.document import read_document
from ..outputs.rows import AuditRow, Checklist
from ..protocol.errors import AuditError
from ..protocol.report import DiagnosticReport
from ..protocol.thresholds import DiagnosticThresholds
from .expect import short_by_letters
from .settings import Settings, resolved
from .targets import Target

SAME = 0.01
"""Numbers of one checkpoint from two machines are the same measurement as far as this, relative."""


@dataclass(frozen=True)
class Merged:
    """The rows of all audits by the path of their target, and what was read of evaluation code."""

    rows: Mapping[str, AuditRow]
    targets: Sequence[Target]
    margins: Mapping[str, str]
    """What was expected of margins over seeds, by the names of their tests."""
    checklist: Checklist | None = None

    def expected_margin(self, name: str, rows: Sequence[AuditRow]) -> str | None:
        """What the merged audits expected of a margin over seeds: the verdict, or that it falls short as each seed does."""
        return self.margins.get(name) or short_by_letters([row.expected for row in rows])


@dataclass(frozen=True)
class _Source:
    file: Path
    row: AuditRow

    @property
    def digest(self) -> str | None:
        report = self.row.report
        return None if report is None else str(report.environment.get("checkpoint_sha256") or "") or None


def merge(config: pytest.Config, settings: Settings) -> Merged:
    """Everything that the files of --fa-merge hold."""
    sources: list[_Source] = []
    margins: dict[str, str] = {}
    checklists: list[Checklist] = []
    for name in settings.merge:
        path = resolved(config, "merge", settings, name)
        try:
            audit = read_document(path)
        except AuditError as error:
            raise AuditError(f"--fa-merge: {error}") from None
        sources += [_Source(path, row) for row in audit.rows]
        margins.update({margin.name: margin.expected for margin in audit.margins if margin.expected is not None})
        if audit.checklist is not None:
            checklists.append(audit.checklist)
    if not sources and not checklists:
        raise AuditError("--fa-merge: nothing to merge: no audit has a row\n  " + "\n  ".join(settings.merge))
    kept: dict[str, _Source] = {}
    for source in sources:
        same = next((k for k in kept.values() if _same_checkpoint(k, source)), None)
        if same is None:
            kept[source.row.checkpoint] = source
        else:
            kept[same.row.checkpoint] = _better(same, source)
    _check_thresholds(list(kept.values()), settings)
    targets, rows = [], {}
    for source in kept.values():
        row = source.row
        target = Target(f"{source.file}#{row.checkpoint}", row.checkpoint, False, "recorded", row.partial, row.method, row.seed)
        targets.append(target)
        rows[target.path] = row
    findings = {(f["file"], f["line"], f["number"]): f for checklist in checklists for f in checklist.findings}
    checklist = Checklist(max(c.files for c in checklists), tuple(findings.values())) if checklists else None
    return Merged(rows, sorted(targets, key=lambda target: target.id), margins, checklist)


def recorded_thresholds(report: DiagnosticReport, settings: Settings) -> DiagnosticThresholds:
    """The thresholds that an audit was judged by, but for those that this command changes."""
    return report.thresholds.replace(**settings.threshold_changes())


def _same_checkpoint(one: _Source, other: _Source) -> bool:
    if one.row.checkpoint == other.row.checkpoint:
        return True
    return one.digest is not None and one.digest == other.digest and not one.row.partial


def _better(one: _Source, other: _Source) -> _Source:
    """Of two rows of one checkpoint the one that tells more; two that tell different things are refused."""
    first, second = one.row.report, other.row.report
    if first is None or second is None:
        return other if first is None and second is not None else one
    difference = _contradiction(first, second)
    if one.digest and other.digest and one.digest != other.digest:
        difference = "they are two different files of that name"
    if difference:
        raise AuditError(
            f"--fa-merge: {one.row.checkpoint} is in two audits that contradict each other: {difference}; leave one out, or "
            f"measure it again\n  {one.file}\n  {other.file}"
        )
    return replace(one, row=_united(one.row, other.row))


def _united(one: AuditRow, other: AuditRow) -> AuditRow:
    """A row whose diagnostics ran in either audit."""
    ran = {key: outcome for key, outcome in other.outcomes.items() if outcome != "not run"}
    waiting = {key for key, outcome in one.outcomes.items() if outcome in ("not run", "error")}
    outcomes = {**ran, **one.outcomes, **{key: ran[key] for key in waiting if key in ran}}
    return replace(one, outcomes=outcomes, expected=one.expected if one.expected is not None else other.expected)


def _contradiction(one: DiagnosticReport, other: DiagnosticReport) -> str:
    """In which number two reports of one checkpoint differ by more than two machines do."""
    lists = ("residual_norms", "bp_grad_norms")
    for name in lists:
        left, right = list(getattr(one, name)), list(getattr(other, name))
        if len(left) != len(right):
            return f"{name} has {len(left)} entries in one and {len(right)} in the other"
        for layer, (a, b) in enumerate(zip(left, right, strict=True)):
            if _differ(a, b):
                return f"{name}[{layer}] is {a} in one and {b} in the other"
    for name in ("headline_acc", "frozen_baseline_acc"):
        if _differ(getattr(one, name), getattr(other, name)):
            return f"{name} is {getattr(one, name)} in one and {getattr(other, name)} in the other"
    if (one.method_name, one.seed) != (other.method_name, other.seed):
        return f"{one.method_name}, seed {one.seed} in one and {other.method_name}, seed {other.seed} in the other"
    judged = [report.fired for report in (one, replace(other, thresholds=one.thresholds))]
    if judged[0] != judged[1]:
        return f"{judged[0] or 'nothing'} fires in one and {judged[1] or 'nothing'} in the other"
    return ""


def _differ(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is not other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) != math.isnan(other)
    return one != other and abs(one - other) > SAME * max(abs(one), abs(other))


def _check_thresholds(sources: Sequence[_Source], settings: Settings) -> None:
    """One audit has one set of thresholds; where the parts differ, the command must say which."""
    changes = settings.threshold_changes()
    first: dict[str, tuple[object, Path]] = {}
    for source in sources:
        if source.row.report is None:
            continue
        for name, value in asdict(source.row.report.thresholds).items():
            before, file = first.setdefault(name, (value, source.file))
            if before != value and name not in changes:
                option = f"--fa-{name}=…" if name in ("growth", "confounds") else f"--fa-threshold={name}=…"
                raise AuditError(
                    f"--fa-merge: the audits were judged by different thresholds: {name} is {before} in one and {value} in "
                    f"another; say which with {option}\n  {file}\n  {source.file}"
                )
