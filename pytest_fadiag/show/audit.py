"""An audit as a value: a row a checkpoint or log, a row a margin over seeds, and what was read of evaluation code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..judge.diagnostics import DIAGNOSTICS, Column, ColumnKind, Diagnostic
from ..judge.keys import Keys
from ..judge.late import named
from ..judge.margins import SeedMargin
from ..judge.names import LONGEST_NAME, as_name, as_text
from ..judge.report import DiagnosticReport
from ..judge.wording import LOG
from .status import Outcome, RowStatus

ACCURACY = Column("", "acc", lambda report: report.headline_acc, ColumnKind.FRACTION, priority=0)
"""The number that belongs to no diagnostic."""


@dataclass(frozen=True)
class AuditRow:
    """What a run knows of one checkpoint or log at its end."""

    checkpoint: str
    method: str
    seed: int | None
    report: DiagnosticReport | None = None
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    """Of the test of each diagnostic, by its key; none where a test asked for the whole report."""
    reason: str = ""
    expected: Keys | None = None
    recorded: DiagnosticReport | None = None
    """What an earlier audit measured, where this one is compared with it."""
    group: str | None = None
    """The test of the margin over seeds to which the row belongs."""

    def __post_init__(self) -> None:
        outcomes = {key: Outcome(self.outcomes[key]) for key in Keys.of(self.outcomes)}
        object.__setattr__(self, "outcomes", outcomes)
        object.__setattr__(self, "checkpoint", as_name(self.checkpoint, "the id of a checkpoint", LONGEST_NAME))
        object.__setattr__(self, "method", as_name(self.method, "the method's name"))
        object.__setattr__(self, "reason", as_text(self.reason, "the reason of an error"))
        if self.expected is not None:
            object.__setattr__(self, "expected", Keys.parse(self.expected))

    @property
    def place(self) -> tuple[bool, str, int, str]:
        """Where the row stands in the table: logs last, by method and seed, then by id."""
        return self.partial, self.method, -1 if self.seed is None else self.seed, self.checkpoint

    @property
    def partial(self) -> bool:
        """Whether the row comes from a training log."""
        return self.report is not None and self.report.partial

    @cached_property
    def status(self) -> RowStatus:
        """What became of the row."""
        return RowStatus.of(self.report, self.outcomes, self.expected, self.reason)

    @property
    def fired(self) -> Keys:
        """The keys that fired among the diagnostics that ran."""
        return self.status.fired

    @property
    def first_fired(self) -> dict[str, int]:
        """When each diagnostic that ran first fired, where a log has several epochs."""
        trajectory = None if self.report is None else self.report.trajectory
        if trajectory is None or len(trajectory.points) < 2:
            return {}
        return {key: epoch for key, epoch in trajectory.first_fired.items() if key in self.status.judged}


@dataclass(frozen=True)
class MarginRow:
    """What became of the test of one method's margin over its seeds."""

    name: str
    """The test's id without its last part: the method, behind its folder where two folders hold the same seeds."""
    method: str
    partial: bool = False
    margin: SeedMargin | None = None
    outcome: Outcome = Outcome.NOT_RUN
    reason: str = ""
    expected: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "outcome", Outcome(self.outcome))
        object.__setattr__(self, "name", as_name(self.name, "the name of a margin over seeds", LONGEST_NAME))
        object.__setattr__(self, "method", as_name(self.method, "the method's name"))
        object.__setattr__(self, "reason", as_text(self.reason, "the reason of an error"))

    @property
    def title(self) -> str:
        """The name without the mark of a log."""
        return self.name.removesuffix(LOG) if self.partial else self.name

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is what somebody recorded."""
        return self.outcome is Outcome.XFAILED or (self.outcome is Outcome.PASSED and self.expected == "PASS")


@dataclass(frozen=True)
class Checklist:
    """What a reading of evaluation code found."""

    files: int
    """How many were read."""
    findings: Sequence[Mapping[str, Any]] = ()
    """Each with number, title, file, line, code, message, fix and silenced: the reason given for letting it stand."""
    notebooks: int = 0
    """How many lie beside these files, and were not read."""


@dataclass(frozen=True)
class Division:
    """What an audit was divided from: parts of one whole have the same."""

    checkpoints: tuple[str, ...]
    """The ids of everything that the parts audit together."""
    settings: Mapping[str, str]
    """The options that decide what is measured and how it is judged, by name."""


@dataclass(frozen=True)
class Origin:
    """Where an audit comes from, and what measures it again; paths start at the root folder."""

    created: str
    """When it ended, as ISO 8601 has it, in UTC."""
    command: str
    commit: str | None
    """Of the repo that it was made in; «+» behind it where files were changed since."""
    versions: Mapping[str, str]
    options: Mapping[str, tuple[str, ...]]
    """Every option that was set, by name, on the command line or in the ini file."""
    files: Mapping[str, str]
    """The SHA-256 of every checkpoint, log and control, by path."""


@dataclass(frozen=True)
class Audit:
    """Everything that a run found; every file is made from it."""

    rows: Sequence[AuditRow]
    margins: Sequence[MarginRow] = ()
    checklist: Checklist | None = None
    shard: tuple[int, int] | None = None
    """Which part of how many this is, where an audit was divided."""
    division: Division | None = None
    origin: Origin | None = None
    interrupted: bool = False
    """Whether the run was stopped before its end."""

    def _repr_html_(self) -> str:
        """What a notebook shows of it; Jinja2 is imported only now."""
        return str(named("pytest_fadiag.show.html:cell")(self))

    @cached_property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The built-in ones that run by default, and of the others those that a row was asked for or shows.

        Where all rows are judged by a published form, it says which run.
        """
        reports = [row.report for row in self.rows if row.report is not None]
        available = reports[0].available if reports else DIAGNOSTICS
        asked = {name for report in reports for name in (*report.diagnostics, *(d.name for d in report.shown))}
        default = () if reports and all(report.protocol for report in reports) else DIAGNOSTICS.by_default
        return tuple(d for d in available if d in default or d.name in asked)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The numbers of its table."""
        return (ACCURACY, *(column for diagnostic in self.diagnostics for column in diagnostic.columns))
