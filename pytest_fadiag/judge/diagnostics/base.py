"""What every diagnostic is: a key, a name, a threshold, a judgement and the words that explain it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..codec import to_plain
from ..observers import REFERENCE, ObserverSpec
from .cause import EXCUSES, Cause
from .column import Column

if TYPE_CHECKING:
    from ..report import DiagnosticReport


class Status(str, enum.Enum):
    """The outcome of one diagnostic."""

    PASS = "pass"
    FIRE = "fire"
    LIKELY_PASS = "likely pass"
    LIKELY_FIRE = "likely fire"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Finding:
    """What one diagnostic says about one report."""

    key: str
    name: str
    status: Status
    value: float | None
    threshold: float
    headline: str
    """The number against its threshold, short enough for a summary line."""
    explanation: str = ""
    """Under what fired: the meaning, in words that can go into the paper."""
    causes: tuple[Cause, ...] = ()
    """Why a number that crosses its threshold was excused, why one fired that does not, or why it is only likely."""

    @property
    def fired(self) -> bool:
        """Whether the result needs, or likely needs, the walk-back that this diagnostic names."""
        return self.status in (Status.FIRE, Status.LIKELY_FIRE)

    @property
    def measured(self) -> bool:
        """Whether there were numbers to judge by, exact or not."""
        return self.status is not Status.NOT_MEASURED

    @property
    def exact(self) -> bool:
        """Whether the numbers decide; a bound that does not and a number that stands in for another are only likely."""
        return self.status in (Status.PASS, Status.FIRE)

    @property
    def excused(self) -> bool:
        """Whether it passes although its number crosses its threshold."""
        return not self.fired and any(cause.kind in EXCUSES for cause in self.causes)

    @property
    def outcome(self) -> str:
        """The status with what was excused or is odd about it: «pass (saturated)»."""
        causes = "; ".join(cause.text for cause in self.causes)
        return f"{self.status.value} ({causes})" if causes else self.status.value

    @property
    def label(self) -> str:
        """What a report calls the diagnostic."""
        return label(self.key, self.name)

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain JSON values; its causes in words."""
        return {**to_plain(replace(self, causes=())), "causes": [cause.text for cause in self.causes]}


def label(key: str, name: str) -> str:
    """«(a) residual-growth», or the name alone of a diagnostic that has no letter."""
    return name if key == name else f"({key}) {name}"


class Diagnostic(ABC):
    """One diagnostic; it reads a report and keeps no state."""

    key: ClassVar[str]
    """A letter of its own if it is built in; else it is known by its name, and needs not say so."""
    name: ClassVar[str]
    question: ClassVar[str]
    threshold: ClassVar[str]
    """The name of the threshold that decides."""
    default: ClassVar[float | None] = None
    """The value of that threshold, where it is no field of :class:`DiagnosticThresholds`."""
    observers: ClassVar[tuple[ObserverSpec[object], ...]]
    """Those that measure what it judges."""
    walk_back: ClassVar[str]
    """What the verdict says when this diagnostic fired."""
    columns: ClassVar[tuple[Column, ...]] = ()
    by_default: ClassVar[bool] = True
    """Whether it runs where nobody says which diagnostics are to run."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__ and "key" not in cls.__dict__:
            cls.key = cls.name

    @property
    def label(self) -> str:
        """What a report calls it: «(a) residual-growth», or its name alone."""
        return label(self.key, self.name)

    @property
    def rests_on_reference(self) -> bool:
        """Whether it judges the BP gradient, or by it."""
        return REFERENCE in self.observers

    @abstractmethod
    def judge(self, report: DiagnosticReport) -> Finding:
        """Pass, fire, or not measured, with the number and its reason."""

    @abstractmethod
    def lines(self, report: DiagnosticReport) -> list[str]:
        """The measured numbers as lines of the report."""

    def values(self, report: DiagnosticReport) -> list[str]:
        """The numbers behind a finding in a few words each, for the reporting form."""
        return self.lines(report)

    def limit(self, report: DiagnosticReport) -> float:
        """The threshold that decides, as this report has it."""
        own = getattr(report.thresholds, self.threshold, self.default)
        return float(report.thresholds.others.get(self.threshold, own))  # type: ignore[arg-type]  # the registry checks it

    def finding(
        self,
        report: DiagnosticReport,
        status: Status,
        value: float | None,
        headline: str,
        explanation: str = "",
        causes: tuple[Cause, ...] = (),
    ) -> Finding:
        """A finding of this diagnostic against the report's own threshold."""
        return Finding(self.key, self.name, status, value, self.limit(report), headline, explanation, causes)
