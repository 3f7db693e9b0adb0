"""Audits of several machines as one: their rows judged again, each checkpoint once, contradictions refused."""

from __future__ import annotations

import glob
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..judge.diagnostics import DIAGNOSTICS, ColumnKind
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..judge.report import DiagnosticReport
from ..judge.unite import united
from ..judge.wording import listed
from ..load.sources import DataSpec
from ..show.audit import Audit, AuditRow, Checklist, Division, Origin
from ..show.document import read_audit
from ..show.printable import one_line
from .options import OPTIONS
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
OWN = (
    *("checkpoint", "log", "seeds", "missing", "merge", "shard", "checklist", "report", "expect", "update_expect"),
    *("update_expect_on_ci", "only", "no_cache", "unsafe_load", "batch_size", "device", "threads"),
)
"""Options in which the parts of one audit may differ: what they name, where results go, and what machines differ in."""


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
    notes: Sequence[str] = ()
    """What is said below the table: which parts are absent."""


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
    notes = check_parts(audits, settings.missing)
    _check_thresholds(sources, settings)
    kept = _each_once(sources, settings)
    _check_asked(kept.values(), settings)
    rows = {f"{source.file}#{source.row.checkpoint}": source.row for source in kept.values()}
    targets = [_target(path, row) for path, row in rows.items()]
    findings = {(f["file"], f["line"], f["column"], f["number"]): f for c in checklists for f in c.findings}
    files, notebooks = (max((getattr(c, name) for c in checklists), default=0) for name in ("files", "notebooks"))
    checklist = Checklist(files, tuple(findings.values()), notebooks) if checklists else None
    origin = next(iter(audits.values())).origin if len(audits) == 1 else None
    return Merged(rows, sorted(targets, key=lambda target: target.id), margins, checklist, origin, notes)


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
    thresholds = one.thresholds.replace(**settings.threshold_changes())
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


def division_of(settings: Settings, checkpoints: Sequence[str]) -> Division:
    """What a part says of the whole."""
    values = {option.field: getattr(settings, option.field) for option in OPTIONS if option.field not in OWN}
    return Division(tuple(checkpoints), {name: _shown(name, value) for name, value in values.items() if name in settings.given})


def _shown(name: str, value: object) -> str:
    """A value without the folders of one machine."""
    if name == "data":
        return DataSpec.parse(str(value), others=True).name
    if name == "frozen" and isinstance(value, tuple):
        return ", ".join(str(text).rpartition("/")[2] for text in value)
    if isinstance(value, tuple):
        return ", ".join("=".join(map(str, item)) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def _check_asked(sources: Iterable[_Source], settings: Settings) -> None:
    """Refuse a diagnostic that the command names and that a row was never measured for: no merge can measure it."""
    if "diagnostics" not in settings.typed or settings.everything:
        return
    for diagnostic in settings.available.select(settings.named):
        judged = [(s.row, s.row.report) for s in sources if s.row.report is not None]
        lacking = [row.checkpoint for row, report in judged if not report.asks_for(diagnostic.key)]
        if lacking:
            raise AuditError(
                f"--fa-diagnostics: {diagnostic.name} was not measured for {_some(lacking)}, and a merge measures nothing; "
                "audit it with that diagnostic, or leave it out here"
            )


def check_parts(audits: Mapping[Path, Audit], missing: str) -> list[str]:
    """Refuse parts of different audits, and a part that is absent; where that is meant, a note says which and what with it."""
    parts = {path: audit for path, audit in audits.items() if audit.shard is not None}
    if not parts:
        return []
    files = "".join(f"\n  {path}" for path in parts)
    divisions = {path: audit.division for path, audit in parts.items() if audit.division is not None}
    for path in parts:
        if path not in divisions:
            raise AuditError(
                "--fa-merge: a part that does not say what it was divided from: an earlier version of pytest-fadiag wrote it; "
                f"audit it again\n  {path}"
            )
    counts = sorted({audit.shard[1] for audit in parts.values() if audit.shard is not None})
    if len(counts) > 1:
        raise AuditError(f"--fa-merge: these are parts of different divisions, into {' and '.join(map(str, counts))}{files}")
    first, division = next(iter(divisions.items()))
    for path, other in divisions.items():
        difference = _difference(division, other)
        if difference:
            raise AuditError(f"--fa-merge: these are parts of different audits: {difference}\n  {first}\n  {path}")
    if counts[0] > len(division.checkpoints):
        raise AuditError(f"--fa-merge: {counts[0]} parts of {len(division.checkpoints)} checkpoints: no such division{files}")
    _check_data(parts)
    there = {audit.shard[0] for audit in parts.values() if audit.shard is not None}
    absent = [number for number in range(1, counts[0] + 1) if number not in there]
    rows = {row.checkpoint for audit in parts.values() for row in audit.rows}
    lost = [name for name in division.checkpoints if name not in rows]
    if missing == "skip":
        gone = f"part {', '.join(map(str, absent))} of {counts[0]} is absent" if absent else "a row is absent"
        return [f"{gone}, and with it {_some(lost) if lost else 'no checkpoint'}"] if absent or lost else []
    if absent:
        raise AuditError(
            f"--fa-merge: part {', '.join(map(str, absent))} of {counts[0]} is missing; audit it with "
            f"--fa-shard={absent[0]}/{counts[0]}, or go without it by --fa-missing=skip{files}"
        )
    if lost:
        raise AuditError(f"--fa-merge: no part has a row of {_some(lost)}, which they were divided from{files}")
    return []


def _difference(one: Division, other: Division) -> str:
    """In what two parts say different things of the whole."""
    alone = set(one.checkpoints) ^ set(other.checkpoints)
    if alone:
        return f"{_some(sorted(alone))} {'is' if len(alone) == 1 else 'are'} to be audited by one and not by the other"
    for name in sorted({*one.settings, *other.settings}):
        values = [division.settings.get(name, "not given") for division in (one, other)]
        if values[0] != values[1]:
            return f"--fa-{name.replace('_', '-')} is {values[0]} in one and {values[1]} in the other"
    return ""


def _check_data(parts: Mapping[Path, Audit]) -> None:
    """All parts are measured on the same test data, as far as these have a digest."""
    first: tuple[Path, str] | None = None
    for path, audit in parts.items():
        for row in audit.rows:
            digest = "" if row.report is None else str(row.report.environment.get("data_sha256") or "")
            if not digest:
                continue
            first = first or (path, digest)
            if digest != first[1]:
                raise AuditError(
                    f"--fa-merge: these are parts of different audits: their test data differ (SHA-256 {first[1][:12]}… and "
                    f"{digest[:12]}…)\n  {first[0]}\n  {path}"
                )


def _some(names: Sequence[str]) -> str:
    return listed(names[:3]) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"
