"""An audit as a value: one row per checkpoint or log, one margin per method.

The same structs are in memory, cross xdist and stand in the JSON file.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from functools import cached_property

import msgspec

from ..judge.diagnostics import Diagnostic, Finding, Status, available
from ..judge.margins import SeedMargin
from ..judge.report import Report
from ..judge.verdict import Verdict
from ..judge.words import grouped

Keys = tuple[str, ...]


class Outcome(str, enum.Enum):
    """What became of one test, from the mildest to the worst; of several the worst counts."""

    NOT_RUN = "not run"
    PASSED = "passed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    FAILED = "failed"
    ERROR = "error"


def found(finding: Finding) -> str | None:
    """What one diagnostic found, as a record words it; ``None`` where nothing decides."""
    if not finding.measured:
        return None
    return "FIRE" if finding.fired else "PASS"


def decide(found: str | None, expected: str | None) -> Outcome:
    """The outcome of a test by what was found and what a record expects.

    Both are PASS, FIRE, INCONCLUSIVE, or nothing.

    >>> decide("FIRE", None).value, decide("FIRE", "FIRE").value, decide(None, "PASS").value
    ('failed', 'xfailed', 'skipped')
    """
    if found is None:
        return Outcome.SKIPPED if expected in (None, "PASS") else Outcome.FAILED
    if found != (expected or "PASS"):
        return Outcome.FAILED
    return Outcome.PASSED if found == "PASS" else Outcome.XFAILED


def judge(
    finding: Finding, keys: Collection[str], expected: Keys | None, required: Collection[str] = ()
) -> Outcome:
    """What becomes of the test of a finding, which these keys name.

    ``expected`` are the keys recorded to fire, ``None`` without a record; one that is ``required``
    must be measured.
    """
    is_missing = finding.status is Status.NOT_MEASURED and finding.key in required
    if finding.error or is_missing:
        return Outcome.ERROR
    if expected is None:
        return decide(found(finding), None)
    return decide(found(finding), "PASS" if set(expected).isdisjoint(keys) else "FIRE")


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
    """The first line of an error."""
    expected: Keys | None = None
    """The keys that a record expects to fire."""
    group: str | None = None
    """The name of the margin over seeds that the row belongs to."""
    cached: bool = False

    @property
    def partial(self) -> bool:
        """Whether the row comes from a training log."""
        return self.report is not None and self.report.partial

    @property
    def digest(self) -> str:
        """SHA-256 of the file, or nothing where no file was measured."""
        known = self.report.environment if self.report else {}
        return str(known.get("checkpoint_sha256", ""))

    @cached_property
    def status(self) -> Verdict:
        """The verdict by what became of its tests; without outcomes every finding counts."""
        findings = self.report.findings if self.report else ()
        if self.outcomes:
            findings = tuple(finding for finding in findings if finding.key in self.outcomes)
        return Verdict.of(
            findings,
            errors=self._keys_of(Outcome.ERROR),
            not_run=self._keys_of(Outcome.NOT_RUN),
            as_given=self.report is not None and self.report.trace,
        )

    def _keys_of(self, outcome: Outcome) -> Keys:
        return tuple(key for key, known in self.outcomes.items() if known is outcome)

    @property
    def as_expected(self) -> bool | None:
        """Whether what fired is what was recorded, as far as it ran; ``None`` without a record."""
        verdict = self.status
        if self.expected is None or not (verdict.fired or verdict.passed):
            return None
        came_out = {*verdict.fired, *verdict.passed, *verdict.unmeasured}
        tested = came_out | {*verdict.errors, *verdict.not_run}
        return tested.intersection(self.expected) == {*verdict.fired}

    def __add__(self, other: Row) -> Row:
        """Two rows of one checkpoint as one: the worst outcomes, the report in which most fired.

        Numbers and diagnostics that this report lacks are taken from the other.
        """
        pairs = [*self.outcomes.items(), *other.outcomes.items()]
        known = grouped(sorted(pairs, key=lambda pair: (len(pair[0]) > 1, pair[0])))
        reports = reports_of((self, other))
        reports.sort(key=lambda report: (len(report.fired), len(report.findings)), reverse=True)
        report = reports[0] if reports else None
        if report is not None and {*reports[-1].diagnostics} - {*report.diagnostics}:
            names = [name for name in report.__struct_fields__ if not getattr(report, name)]
            changes = {name: getattr(reports[-1], name) for name in names}
            changes["diagnostics"] = (*report.diagnostics, *reports[-1].diagnostics)
            report = msgspec.structs.replace(report, **changes)
        return msgspec.structs.replace(
            self,
            report=report,
            outcomes={key: max(own, key=list(Outcome).index) for key, own in known.items()},
            reason=self.reason or other.reason,
            expected=other.expected if self.expected is None else self.expected,
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
        return self.margin.verdict.value if self.margin else None

    @property
    def as_expected(self) -> bool | None:
        """Whether the verdict is the recorded one; ``None`` without a record."""
        recorded = self.expected is not None and self.margin is not None
        return self.outcome in (Outcome.PASSED, Outcome.XFAILED) if recorded else None


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
    files: dict[str, str] = {}
    """The SHA-256 of every checkpoint, log and control, by path."""


class Audit(msgspec.Struct, frozen=True, dict=True):
    """Everything that a run found; every output is made from it."""

    rows: tuple[Row, ...]
    margins: tuple[Margin, ...] = ()
    shard: tuple[int, int] | None = None
    """Which part of how many this is."""
    origin: Origin | None = None
    interrupted: bool = False

    @property
    def reports(self) -> list[Report]:
        """The reports of all rows that have one."""
        return reports_of(self.rows)

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Those that a report was asked for; without any report those that run by default."""
        asked = {name for report in self.reports for name in report.diagnostics}
        return tuple(d for d in available() if (d.name in asked if asked else d.by_default))

    @property
    def exit_code(self) -> int:
        """What pytest would return: 0 passed, 1 failed, 2 interrupted, 5 nothing ran."""
        outcomes = [outcome for row in self.rows for outcome in row.outcomes.values()]
        outcomes += [margin.outcome for margin in self.margins]
        if self.interrupted:
            return 2
        if not set(outcomes) - {Outcome.NOT_RUN}:
            return 5
        bad = {Outcome.FAILED, Outcome.ERROR, Outcome.NOT_RUN}
        return int(not bad.isdisjoint(outcomes))


def reports_of(rows: Iterable[Row]) -> list[Report]:
    """The reports of all rows that have one."""
    return [row.report for row in rows if row.report is not None]


def united(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows of single tests as one row per checkpoint: logs last, by method, seed and id."""
    by_id: dict[str, Row] = {}
    for row in rows:
        by_id[row.checkpoint] = by_id[row.checkpoint] + row if row.checkpoint in by_id else row
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
