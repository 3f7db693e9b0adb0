"""An audit as a value: one row per checkpoint or log, one margin per method.

The same structs are in memory, cross xdist and stand in the JSON file.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec.structs import replace

from ..judge.diagnostics import Diagnostic, Finding, Status, available
from ..judge.report import Report
from ..judge.seed_margins import SeedMargin
from ..judge.verdict import Verdict

Keys = tuple[str, ...]
Part = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
MOST_FILES = msgspec.Meta(max_length=10_000)
"""Bounds of what is read from a file."""


class Outcome(str, enum.Enum):
    """What became of one test, from the mildest to the worst; of several the worst counts."""

    NOT_RUN = "not run"
    PASSED = "passed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    FAILED = "failed"
    ERROR = "error"

    @property
    def severity(self) -> int:
        """Its place in this order."""
        return list(Outcome).index(self)


def found(finding: Finding) -> str | None:
    """What one diagnostic found, as a record words it; ``None`` where nothing decides."""
    if not finding.measured:
        return None
    if finding.fired:
        return "FIRE"
    return "PASS"


def decide(found: str | None, expected: str | None) -> Outcome:
    """The outcome of a test by what was found and what a record expects.

    Both are PASS, FIRE, INCONCLUSIVE, or nothing.

    >>> decide("FIRE", None).value, decide("FIRE", "FIRE").value, decide(None, "PASS").value
    ('failed', 'xfailed', 'skipped')
    """
    expected = expected or "PASS"
    if found is None and expected == "PASS":
        return Outcome.SKIPPED
    if found != expected:
        return Outcome.FAILED
    if found == "PASS":
        return Outcome.PASSED
    return Outcome.XFAILED


def outcome_of(
    finding: Finding, keys: Collection[str], expected: Keys | None, required: Collection[str] = ()
) -> Outcome:
    """The outcome of the test of a finding, which these keys name.

    ``expected`` are the keys recorded to fire, ``None`` without a record; one that is ``required``
    must be measured.
    """
    is_missing = finding.status is Status.NOT_MEASURED and finding.key in required
    if finding.error or is_missing:
        return Outcome.ERROR
    if expected is None or set(expected).isdisjoint(keys):
        return decide(found(finding), None)
    return decide(found(finding), "FIRE")


class Row(msgspec.Struct, frozen=True, dict=True):
    """What a run knows about one checkpoint or log."""

    checkpoint: str
    """Its id: the node id without the diagnostic."""
    method: str
    seed: int | None = None
    report: Report | None = None
    outcomes: dict[str, Outcome] = {}
    """By the key of the diagnostic; empty where a test used the whole report."""
    reason: str = ""
    """The first line of what the worst of its tests says, of several the first."""
    expected: Keys | None = None
    """The keys that a record expects to fire."""
    group: str | None = None
    """The name of the margin over seeds that the row belongs to."""
    cached: bool = False

    @classmethod
    def of(cls, report: Report) -> Row:
        """The row of a report that no test made."""
        outcomes = {finding.key: decide(found(finding), None) for finding in report.findings}
        name = report.checkpoint or report.method_name
        return cls(name, report.method_name, report.seed, report, outcomes)

    @property
    def partial(self) -> bool:
        """Whether the row comes from a training log."""
        return self.report is not None and self.report.partial

    @property
    def digest(self) -> str:
        """SHA-256 of the file, or nothing where no file was measured."""
        if self.report is None:
            return ""
        return str(self.report.environment.get("checkpoint_sha256", ""))

    @cached_property
    def conclusion(self) -> Verdict:
        """The verdict by what became of its tests; without outcomes every finding counts."""
        findings: tuple[Finding, ...] = ()
        if self.report is not None:
            findings = self.report.findings
        if self.outcomes:
            findings = tuple(finding for finding in findings if finding.key in self.outcomes)
        return Verdict.of(
            findings,
            errors=self._keys_of(Outcome.ERROR),
            not_run=self._keys_of(Outcome.NOT_RUN),
            as_given=self.report is not None and self.report.trace,
        )

    def _keys_of(self, outcome: Outcome) -> Keys:
        return tuple(key for key, became in self.outcomes.items() if became is outcome)

    @property
    def severity(self) -> int:
        """That of its worst test."""
        return max((outcome.severity for outcome in self.outcomes.values()), default=0)

    @property
    def as_expected(self) -> bool | None:
        """Whether what fired is what was recorded, as far as it ran; ``None`` without a record."""
        verdict = self.conclusion
        if self.expected is None or not (verdict.fired or verdict.passed):
            return None
        came_out = {*verdict.fired, *verdict.passed, *verdict.unmeasured}
        tested = came_out | {*verdict.errors, *verdict.not_run}
        return tested.intersection(self.expected) == {*verdict.fired}

    def __add__(self, other: Row) -> Row:
        """Two rows of one checkpoint as one: the worst outcomes, the report in which most fired.

        Numbers and diagnostics that this report lacks are taken from the other.
        """
        outcomes = dict(self.outcomes)
        for key, outcome in other.outcomes.items():
            earlier = outcomes.get(key, outcome)
            if outcome.severity >= earlier.severity:
                outcomes[key] = outcome
        reason = self.reason or other.reason
        if other.reason and other.severity > self.severity:
            reason = other.reason
        expected = self.expected
        if expected is None:
            expected = other.expected
        return replace(
            self,
            report=_united_report(reports_of((self, other))),
            outcomes=dict(sorted(outcomes.items(), key=lambda item: _place(item[0]))),
            reason=reason,
            expected=expected,
            group=self.group or other.group,
            cached=self.cached and other.cached,
        )


class Margin(msgspec.Struct, frozen=True):
    """What became of the test of one method's margin over its seeds."""

    name: str
    """The id of the test without ``::seed-margin``."""
    method: str
    partial: bool = False
    margin: SeedMargin | None = None
    outcome: Outcome = Outcome.NOT_RUN
    reason: str = ""
    expected: str | None = None
    """PASS, FIRE or INCONCLUSIVE, where recorded."""

    @property
    def verdict(self) -> str | None:
        """One of these; ``None`` where no margin was computed."""
        if self.margin is None:
            return None
        return self.margin.verdict.value

    @property
    def as_expected(self) -> bool | None:
        """Whether the verdict is the recorded one; ``None`` without a record."""
        if self.expected is None or self.margin is None:
            return None
        return self.outcome in (Outcome.PASSED, Outcome.XFAILED)


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an audit comes from, and what measures it again; paths start at the root folder."""

    created: str
    """ISO 8601, UTC."""
    command: str = ""
    commit: str | None = None
    """Of the repository; with a «+» where files were changed since."""
    versions: dict[str, str] = {}
    options: dict[str, tuple[str, ...]] = {}
    """Every option that was set, by name, on the command line or in the ini file."""
    files: Annotated[dict[str, str], MOST_FILES] = {}
    """The SHA-256 of every checkpoint, log and control, by path."""


class Audit(msgspec.Struct, frozen=True, dict=True):
    """Everything that a run found; every output is made from it."""

    rows: Annotated[tuple[Row, ...], MOST_FILES]
    margins: tuple[Margin, ...] = ()
    shard: tuple[Part, Part] | None = None
    """Which part of how many this is."""
    origin: Origin | None = None
    interrupted: bool = False

    @property
    def measured(self) -> list[Row]:
        """The rows that have a report."""
        return [row for row in self.rows if row.report is not None]

    @property
    def reports(self) -> list[Report]:
        """The reports of all rows that have one."""
        return reports_of(self.rows)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Those that a report was asked for; without any report those that run by default."""
        names: set[str] = set()
        for report in self.reports:
            names.update(report.diagnostics)
        chosen = []
        for diagnostic in available():
            is_default = diagnostic.by_default and not names
            if is_default or diagnostic.name in names:
                chosen.append(diagnostic)
        return tuple(chosen)

    @property
    def exit_code(self) -> int:
        """What pytest would return: 0 passed, 1 failed, 2 interrupted, 5 nothing ran."""
        outcomes = [margin.outcome for margin in self.margins]
        for row in self.rows:
            outcomes += row.outcomes.values()
        if self.interrupted:
            return 2
        if not set(outcomes) - {Outcome.NOT_RUN}:
            return 5
        bad = {Outcome.FAILED, Outcome.ERROR, Outcome.NOT_RUN}
        return int(not bad.isdisjoint(outcomes))


def reports_of(rows: Iterable[Row]) -> list[Report]:
    """The reports of all rows that have one."""
    return [row.report for row in rows if row.report is not None]


def _united_report(reports: list[Report]) -> Report | None:
    """The report in which most fired, with what it lacks from the other."""
    if not reports:
        return None
    reports.sort(key=lambda report: (len(report.fired), len(report.findings)), reverse=True)
    first = reports[0]
    last = reports[-1]
    if {*last.diagnostics} <= {*first.diagnostics}:
        return first
    changes = {}
    for name in first.__struct_fields__:
        if not getattr(first, name):
            changes[name] = getattr(last, name)
    changes["diagnostics"] = (*first.diagnostics, *last.diagnostics)
    return replace(first, **changes)


def _place(key: str) -> tuple[int, str]:
    """The place of a diagnostic among all; one whose package is missing comes last, by name."""
    keys = [diagnostic.key for diagnostic in available()]
    if key in keys:
        return keys.index(key), key
    return len(keys), key


def united(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of single tests as one row per checkpoint: logs last, by method, seed and id.

    The order in which they come, which is that of workers, changes nothing.
    """
    by_id: dict[str, Row] = {}
    for row in sorted(rows, key=_order):
        if row.checkpoint in by_id:
            by_id[row.checkpoint] += row
        else:
            by_id[row.checkpoint] = row
    return tuple(
        sorted(
            by_id.values(),
            key=lambda row: (
                row.partial,
                row.method,
                row.seed is not None,
                row.seed or 0,
                row.checkpoint,
            ),
        )
    )


def _order(row: Row) -> tuple[bool, tuple[tuple[int, str], ...]]:
    """Rows with a report first, by the diagnostics that they are about."""
    return row.report is None, tuple(map(_place, row.outcomes))
