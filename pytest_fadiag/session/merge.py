"""Audits of several machines as one: their rows judged again, each checkpoint once, contradictions refused."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..judge.control import Control
from ..judge.diagnostics import DIAGNOSTICS, ColumnKind, Diagnostic
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..judge.records import Accuracy
from ..judge.report import DiagnosticReport
from ..judge.thresholds import DiagnosticThresholds
from ..judge.unite import united
from ..show.audit import Audit, AuditRow, Checklist, Origin
from ..show.document import read_audit
from ..show.printable import one_line
from ..show.status import in_words
from .expect import short_by_letters
from .parts import check_parts
from .settings import Settings
from .targets import Kind, Target

SAME = 0.01
"""Norms of one checkpoint from two machines are the same measurement as far as this, relative; cosines absolutely."""
SAME_ACCURACY = 0.001
"""So are its accuracies on one test set: a few images lie on a decision boundary."""
SAME_BY_KIND = {
    ColumnKind.SCALE: SAME,
    ColumnKind.COSINE: SAME,
    ColumnKind.FRACTION: SAME_ACCURACY,
    ColumnKind.POINTS: 100 * SAME_ACCURACY,
    ColumnKind.COUNT: 0.5,
}
"""The same of what a column shows: percentage points are hundredths of accuracies."""
RELATIVE = ("gradient_per_unit_error", "output_error_norm")
ABSOLUTE = ("sample_invariance", "output_error_drift")
EXACT = ("batches", "samples", "classes", "nonfinite_logits")
"""The companions that two measurements of one checkpoint share, and how closely."""


@dataclass(frozen=True)
class Merged:
    """The rows of all audits by the path of their target, and what was read of evaluation code."""

    rows: Mapping[str, AuditRow]
    targets: Sequence[Target]
    margins: Mapping[str, str]
    """What was expected of margins over seeds, by the names of their tests."""
    checklist: Checklist | None = None
    origin: Origin | None = None
    """Where the one file that is rendered again comes from; of several, each has its own."""

    def expected_margin(self, name: str, reports: Sequence[DiagnosticReport]) -> str | None:
        """What the merged audits expected of a margin over seeds: the verdict, or that it falls short as each seed does."""
        return self.margins.get(name) or short_by_letters([report.expected for report in reports])


@dataclass(frozen=True)
class RecordedRow:
    """A row of an earlier audit, judged again."""

    row: AuditRow
    settings: Settings
    fingerprint: None = None

    @property
    def method(self) -> str:
        """As recorded."""
        return self.row.method

    @property
    def seed(self) -> int | None:
        """As recorded."""
        return self.row.seed

    @property
    def control(self) -> Control | None:
        """The control that the row was compared with."""
        report = self.row.report
        if report is None or report.frozen_baseline_acc is None:
            return None
        return report.control or Control(Accuracy(report.frozen_baseline_acc), "recorded")

    @property
    def expected(self) -> Keys | None:
        """The diagnostics that were expected to fire."""
        return self.row.expected

    @property
    def problems(self) -> Mapping[str, BaseException]:
        """A diagnostic that the recorded run could not judge is not judged by merging it."""
        unjudged = [d for d in self.settings.available if self.row.outcomes.get(d.key) in ("error", "not run")]
        why = self.row.reason or in_words(self.row.status)
        return {d.key: AuditError(f"{d.name} was not judged in the recorded audit: {why}") for d in unjudged}

    def judge(
        self, control: Control | None, thresholds: DiagnosticThresholds, diagnostics: Sequence[Diagnostic]
    ) -> DiagnosticReport:
        """The recorded numbers by the recorded thresholds, but for what this command changes."""
        report = self.row.report
        if report is None:
            raise AuditError(self.row.reason or f"{self.row.checkpoint} was not judged in the recorded audit")
        accuracy = None if control is None else control.accuracy.value
        judged_by = self.settings.judged_by(report.thresholds)
        return replace(report, control=control, frozen_baseline_acc=accuracy, thresholds=judged_by)


@dataclass(frozen=True)
class _Source:
    file: Path
    row: AuditRow

    @property
    def digest(self) -> str | None:
        report = self.row.report
        return None if report is None else str(report.environment.get("checkpoint_sha256") or "") or None


def merge(settings: Settings) -> Merged:
    """Everything that the files of --fa-merge hold."""
    sources: list[_Source] = []
    margins: dict[str, str] = {}
    checklists: list[Checklist] = []
    audits: dict[Path, Audit] = {}
    for path in merged_files(settings):
        try:
            audit = read_audit(path, settings.available)
        except AuditError as error:
            raise AuditError(f"--fa-merge: {error}") from None
        audits[path] = audit
        sources += [_Source(path, row) for row in audit.rows]
        margins.update({margin.name: margin.expected for margin in audit.margins if margin.expected is not None})
        if audit.checklist is not None:
            checklists.append(audit.checklist)
    if not sources and not checklists:
        raise AuditError("--fa-merge: nothing to merge: no audit has a row\n  " + "\n  ".join(settings.merge))
    check_parts(audits, settings.missing)
    _check_thresholds(sources, settings)
    kept = _each_once(sources, settings)
    rows = {f"{source.file}#{source.row.checkpoint}": source.row for source in kept.values()}
    targets = [_target(path, row) for path, row in rows.items()]
    findings = {(f["file"], f["line"], f["column"], f["number"]): f for c in checklists for f in c.findings}
    checklist = Checklist(max(c.files for c in checklists), tuple(findings.values())) if checklists else None
    origin = next(iter(audits.values())).origin if len(audits) == 1 else None
    return Merged(rows, sorted(targets, key=lambda target: target.id), margins, checklist, origin)


def merged_files(settings: Settings) -> list[Path]:
    """The files that the option names, globs expanded, each once."""
    files: list[Path] = []
    for name in settings.merge:
        path = settings.path("merge", name)
        matches = sorted(glob.glob(str(path))) if glob.has_magic(str(path)) and not path.exists() else [str(path)]
        if not matches:
            raise AuditError(f"--fa-merge: the glob matches no file\n  {path}")
        files += map(Path, matches)
    return list(dict.fromkeys(files))


def _target(path: str, row: AuditRow) -> Target:
    skipped = row.report is None and bool(row.outcomes) and set(row.outcomes.values()) == {"skipped"}
    return Target(
        path,
        row.checkpoint,
        Kind.RECORDED,
        skip=f"skipped in the recorded audit: {one_line(row.checkpoint)}" if skipped else "",
        partial=row.partial,
        method=row.method,
        seed=row.seed,
        group=row.group,
        keys=Keys.of(row.outcomes) or None,
    )


def _each_once(sources: Iterable[_Source], settings: Settings) -> dict[str, _Source]:
    """The rows by checkpoint; of one that is in several audits, under one name or one digest, what they say together."""
    kept: dict[str, _Source] = {}
    by_digest: dict[str, list[str]] = {}
    for source in sources:
        # Two files of one content in one audit are two rows there, whatever they are.
        alike = (name for name in by_digest.get(source.digest or "", ()) if kept[name].file != source.file)
        name = source.row.checkpoint if source.row.checkpoint in kept else next(alike, None)
        if name is not None:
            kept[name] = _better(kept[name], source, settings)
            continue
        kept[source.row.checkpoint] = source
        if source.digest is not None and not source.row.partial:
            by_digest.setdefault(source.digest, []).append(source.row.checkpoint)
    return kept


def _better(one: _Source, other: _Source, settings: Settings) -> _Source:
    """Of two rows of one checkpoint the one that tells more; two that tell different things are refused."""
    first, second = one.row.report, other.row.report
    if first is None or second is None:
        return other if first is None and second is not None else one
    difference = _contradiction(first, second, settings)
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
    report = united(one.report, other.report) if one.report is not None and other.report is not None else one.report
    ran = {key: outcome for key, outcome in other.outcomes.items() if outcome != "not run"}
    waiting = {key for key, outcome in one.outcomes.items() if outcome in ("not run", "error")}
    outcomes = {**ran, **one.outcomes, **{key: ran[key] for key in waiting if key in ran}}
    return replace(one, report=report, outcomes=outcomes, expected=one.expected if one.expected is not None else other.expected)


def _contradiction(one: DiagnosticReport, other: DiagnosticReport, settings: Settings) -> str:
    """In what two reports of one checkpoint differ by more than two machines do."""
    for name in ("residual_norms", "bp_grad_norms"):
        sizes = len(getattr(one, name)), len(getattr(other, name))
        if all(sizes) and sizes[0] != sizes[1]:
            return f"{name} has {sizes[0]} entries in one and {sizes[1]} in the other"
    numbers = {name: b for name, b, _, _ in _numbers(other)}
    same_diagnostics = set(one.diagnostics) == set(other.diagnostics)
    for name, a, tolerance, relative in _numbers(one):
        b = numbers.get(name)
        if (same_diagnostics or (a is not None and b is not None)) and _differ(a, b, tolerance, relative):
            return f"{name} is {a} in one and {b} in the other"
    facts = _facts(one), _facts(other)
    for name in facts[0]:
        left, right = (values[name] for values in facts)
        if left is not None and right is not None and left != right:
            return f"{name} is {left} in one and {right} in the other"
    shared = tuple(name for name in one.diagnostics if name in other.diagnostics)
    thresholds = settings.judged_by(one.thresholds)
    first, second = (replace(report, thresholds=thresholds, diagnostics=shared).fired for report in (one, other))
    if first != second:
        return f"{first or 'nothing'} fires in one and {second or 'nothing'} in the other"
    return ""


def _facts(report: DiagnosticReport) -> dict[str, object]:
    """What two reports of one checkpoint share exactly, as far as both know it."""
    control = report.control
    return {
        "the method": report.method_name,
        "the seed": report.seed,
        "the layer of the drift": report.stability_layer,
        "the number of test images": None if report.accuracy is None else report.accuracy.images,
        "the control": None if control is None else (control.kind.value, control.method, control.seed),
        "the digest of the test data": report.environment.get("data_sha256"),
        **{name: getattr(report.companions, name) for name in EXACT},
    }


def _numbers(report: DiagnosticReport) -> list[tuple[str, float | None, float, bool]]:
    """The numbers of a report: each with its name, and how far it may differ, relatively or absolutely."""
    numbers: list[tuple[str, float | None, float, bool]] = []
    for name in ("residual_norms", "bp_grad_norms"):
        numbers += [(f"{name}[{layer}]", value, SAME, True) for layer, value in enumerate(getattr(report, name))]
    numbers += [(name, getattr(report.companions, name), SAME, True) for name in RELATIVE]
    numbers += [(name, getattr(report.companions, name), SAME, False) for name in ABSOLUTE]
    numbers.append(("cross_batch_stability", report.cross_batch_stability, SAME, False))
    # Of the others, whose numbers are no fields, what the table shows.
    others = [d for d in report.available if d not in DIAGNOSTICS.by_default and d.name in report.diagnostics]
    for column in (column for diagnostic in others for column in diagnostic.columns):
        numbers.append((column.title, column.value(report), SAME_BY_KIND[column.kind], column.kind is ColumnKind.SCALE))
    return [
        *numbers,
        *((name, getattr(report, name), SAME_ACCURACY, False) for name in ("headline_acc", "frozen_baseline_acc")),
    ]


def _differ(one: float | None, other: float | None, tolerance: float, relative: bool) -> bool:
    if one is None or other is None:
        return one is not other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) != math.isnan(other)
    return one != other and not abs(one - other) <= tolerance * (max(abs(one), abs(other)) if relative else 1)


def _check_thresholds(sources: Sequence[_Source], settings: Settings) -> None:
    """One audit has one set of thresholds; where the parts differ, the command must say which."""
    changes = settings.threshold_changes()
    first: dict[str, tuple[object, Path]] = {}
    for source in sources:
        if source.row.report is None:
            continue
        for name, value in source.row.report.thresholds.by_name().items():
            before, file = first.setdefault(name, (value, source.file))
            if before != value and name not in changes:
                option = f"--fa-{name}=…" if name in ("growth", "confounds") else f"--fa-threshold={name}=…"
                raise AuditError(
                    f"--fa-merge: the audits were judged by different thresholds: {name} is {before} in one and {value} in "
                    f"another; say which with {option}\n  {file}\n  {source.file}"
                )
