"""What every diagnostic is: a question, a threshold, a judgement, and the words that explain it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from ..report import Report as Report  # noqa: PLC0414 (re-exported)
else:
    Report = object  # a name for annotations: a report imports the diagnostics

REFERENCE = frozenset({"gradients", "directions", "credit"})
"""The metrics that rest on a proven BP gradient."""
STREAMLESS = frozenset({"accuracy", "output-error", "floor"})
"""The metrics that are measured of a network without a stream too."""


class Status(str, enum.Enum):
    """The outcome of one diagnostic."""

    PASS = "pass"
    FIRE = "fire"
    LIKELY_PASS = "likely pass"
    LIKELY_FIRE = "likely fire"
    NOT_MEASURED = "not measured"
    NOT_RESOLVED = "not resolved"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one diagnostic says about one report."""

    key: str
    name: str
    status: Status
    value: float | None = None
    threshold: float
    interval: tuple[float, float] | None = None
    headline: str = ""
    """The number against its threshold, in one line; where it fired, after the claim."""
    claim: str = ""
    """What fired, in a few words that say no more than the interval does."""
    explanation: str = ""
    """What it means, in words that can go into the paper."""
    causes: tuple[str, ...] = ()
    """Why it is not a plain pass or fire: «saturated», «non-finite», «control in doubt»."""
    exempted: bool = False
    """Whether it passes although its number crosses the threshold."""
    error: str = ""
    """Why its test is an error: the reference is not proven, the control cannot be read."""

    @property
    def fired(self) -> bool:
        """Whether the result needs, or likely needs, a walk-back."""
        return self.status in (Status.FIRE, Status.LIKELY_FIRE)

    @property
    def measured(self) -> bool:
        """Whether there were numbers that decide, exactly or likely."""
        return self.status not in (Status.NOT_MEASURED, Status.NOT_RESOLVED)

    @property
    def passed(self) -> bool:
        """Whether these numbers pass."""
        return self.measured and not self.fired

    @property
    def exact(self) -> bool:
        """Whether the numbers decide, rather than a bound or a proxy."""
        return self.status in (Status.PASS, Status.FIRE)

    @property
    def outcome(self) -> str:
        """The status with its causes: «pass (saturated)»."""
        return (
            f"{self.status.value} ({'; '.join(self.causes)})" if self.causes else self.status.value
        )


class Column(msgspec.Struct, frozen=True):
    """One number that a diagnostic contributes to the audit table."""

    title: str
    value: Callable[[Report], float | None]
    show: Callable[[float], str]
    """How it is written: one of the formats in :mod:`..words`."""
    priority: int
    """Columns with high numbers are dropped first when the terminal is narrow."""
    text: Callable[[Report], str] | None = None
    """What stands in a row where that says more than the number: 1/4."""
    key: str = ""
    """The diagnostic; set by :func:`pytest_fadiag.judge.diagnostics.columns`."""


class Diagnostic(ABC):
    """One diagnostic; it reads a report and keeps no state."""

    key: ClassVar[str]
    """A letter if it is built in, else its name."""
    name: ClassVar[str]
    question: ClassVar[str]
    threshold: ClassVar[str]
    """The name of the threshold that decides."""
    default: ClassVar[float | None] = None
    """The value of that threshold, where it is no field of ``DiagnosticThresholds``."""
    needs: ClassVar[tuple[str, ...]]
    """The metrics that measure what it judges, by name."""
    walk_back: ClassVar[str]
    """What the verdict says when it fired."""
    columns: ClassVar[tuple[Column, ...]] = ()
    by_default: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__ and "key" not in cls.__dict__:
            cls.key = cls.name

    @property
    def label(self) -> str:
        """«(a) residual-growth», or the name alone."""
        return self.name if self.key == self.name else f"({self.key}) {self.name}"

    @abstractmethod
    def judge(self, report: Report) -> Finding:
        """Pass, fire, or not measured, with the number and its reason."""

    def table(self, report: Report) -> list[str]:
        """The numbers that a failing test shows too, by state where there are states."""
        return []

    @abstractmethod
    def lines(self, report: Report) -> list[str]:
        """The other measured numbers as lines of the report; empty ones are left out."""

    def limit(self, report: Report) -> float:
        """The threshold that decides, as this report has it."""
        own = getattr(report.thresholds, self.threshold, self.default)
        return float(report.thresholds.others.get(self.threshold, own))  # type: ignore[arg-type]

    def unmeasured(self, report: Report, why: str, error: str = "") -> Finding:
        """A finding that there is no number, and why."""
        return self.finding(report, Status.NOT_MEASURED, headline=why, error=error)

    def finding(
        self,
        report: Report,
        status: Status,
        value: float | None = None,
        headline: str = "",
        explanation: str = "",
        causes: Iterable[str] = (),
        *,
        doubts: Iterable[str] = (),
        claim: str = "",
        interval: tuple[float, float] | None = None,
        exempted: bool = False,
        error: str = "",
    ) -> Finding:
        """A finding against the report's own threshold; empty causes are left out.

        With doubts a pass or a fire is only likely. Without a claim what fired is the walk-back.
        """
        unsure = tuple(filter(None, doubts))
        if unsure:
            status = {Status.PASS: Status.LIKELY_PASS, Status.FIRE: Status.LIKELY_FIRE}[status]
        if status in (Status.FIRE, Status.LIKELY_FIRE):
            claim = claim or self.walk_back
            headline = f"{claim}: {headline}" if headline else claim
        return Finding(
            key=self.key,
            name=self.name,
            status=status,
            value=value,
            threshold=self.limit(report),
            interval=interval,
            headline=headline,
            claim=claim,
            explanation=explanation,
            causes=(*filter(None, causes), *unsure),
            exempted=exempted,
            error=error,
        )
