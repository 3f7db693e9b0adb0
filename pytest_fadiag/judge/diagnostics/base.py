"""What every diagnostic is: a question, a threshold, a judgement, and the words that explain it."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from ..words import and_more, plural

if TYPE_CHECKING:
    from ..records import Depth, LinearReadout
    from ..report import Report as Report  # noqa: PLC0414 (re-exported)
    from ..twin import Twin
else:
    Report = object  # a name for annotations: a report imports the diagnostics


class Status(str, enum.Enum):
    """The outcome of one diagnostic."""

    PASS = "pass"
    FIRE = "fail"
    LIKELY_PASS = "likely pass"
    LIKELY_FIRE = "likely fail"
    NOT_MEASURED = "not measured"
    NOT_RESOLVED = "not resolved"


class OpenKind(str, enum.Enum):
    """What kind of reason keeps a finding from deciding."""

    NOT_MEASURED = "not measured"
    NOT_RESOLVED = "not resolved"
    LIKELY = "likely"
    """A bound or a proxy was measured, not the number."""
    ERROR = "error"
    NOT_RUN = "not run"
    NOT_NEEDED = "not needed"
    """Another diagnostic decides."""
    CONTROL_QUESTIONED = "measured against a questioned control"
    NOT_ENOUGH_ALONE = "not enough alone"
    """It passes, but no verdict may rest on this pass without a reliable control."""
    CONTRADICTED = "contradicted"
    """It passes, but another number of the network says the opposite."""
    REFERENCE_QUESTIONED = "measured against a questioned reference"

    @property
    def untested(self) -> bool:
        """Whether a test that should have judged did not: that leaves any verdict open."""
        return self in (OpenKind.ERROR, OpenKind.NOT_RUN)

    @property
    def in_doubt(self) -> bool:
        """Whether the number is there and passes, and the pass does not count."""
        return self in (
            OpenKind.CONTROL_QUESTIONED,
            OpenKind.NOT_ENOUGH_ALONE,
            OpenKind.CONTRADICTED,
            OpenKind.REFERENCE_QUESTIONED,
        )


class Open(msgspec.Struct, frozen=True):
    """What keeps a finding that did not fail from deciding."""

    kind: OpenKind
    why: str = ""
    """The reason in words, where the kind does not say it all."""
    reaches: bool = False
    """Whether the number itself passes, and its interval alone is too wide."""

    @property
    def replaceable(self) -> bool:
        """Whether the fallback may stand in for a diagnostic that is open for this reason."""
        return self.reaches or self.kind in (OpenKind.NOT_MEASURED, OpenKind.CONTROL_QUESTIONED)

    def __str__(self) -> str:
        return self.why or self.kind.value


RECORD = "audit a checkpoint of this run, or log the next one by pytest_fadiag.Recorder"
"""What decides where a log does not."""
OPEN_KINDS = {
    Status.NOT_MEASURED: OpenKind.NOT_MEASURED,
    Status.NOT_RESOLVED: OpenKind.NOT_RESOLVED,
    Status.LIKELY_PASS: OpenKind.LIKELY,
}
"""The outcomes that decide nothing."""


def more_samples(report: Report, number: int, unit: str) -> str:
    """What to test on so that an interval narrows; of skewed data the rare classes widen it."""
    if report.score is not None and report.score.is_skewed:
        return f"test on more {unit}s of the rare classes"
    return f"test on about {plural(number, unit)}"


def fitted_to(report: Report, readout: Depth | LinearReadout) -> str:
    """What linear readouts were fitted to and evaluated on."""
    read = plural(readout.read, f"test {report.probe_unit}")
    if readout.training:
        fitted = plural(readout.fitted, report.probe_unit)
        return f"fitted to {fitted} of {readout.training}, evaluated on {read}"
    return f"fitted to {readout.fitted:,} of {read}, evaluated on the others, both ways"


def classes_left_out(classes: tuple[int, ...], unit: str) -> str:
    """Which classes no score counts."""
    names = and_more([str(label) for label in classes], 9)
    return f"fewer than 5 {unit}s in a half, not counted: class {names}"


class Role(str, enum.Enum):
    """What a diagnostic counts for in the verdict; one that fires is always a walk-back."""

    REQUIRED = "required"
    """No result is trustworthy unless it passes."""
    FALLBACK = "fallback"
    """Its pass stands in for a required one that has no reliable control."""
    WHERE_ASKED = "where asked"
    """Required of the results of which it was asked."""
    EXTRA = "extra"
    """It counts only where it fires, or its test is an error."""


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
    walk_back: str = ""
    """The same in the words of the published verdict."""
    explanation: str = ""
    """What it means, in words that can go into the paper."""
    causes: tuple[str, ...] = ()
    """Why it is not a plain pass or fire: «saturated», «non-finite», «control in doubt»."""
    exempted: bool = False
    """Whether it passes although its number crosses the threshold."""
    certain: bool = False
    """Whether it fires whatever BP networks gain on the same task."""
    open: Open | None = None
    """What keeps it from deciding, where it did not fire; ``None`` where it decides."""
    remedy: str = ""
    """What to do so that it decides, or what to write where it fires."""
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
        if not self.causes:
            return self.status.value
        return f"{self.status.value} ({'; '.join(self.causes)})"


class Column(msgspec.Struct, frozen=True):
    """One number that a diagnostic contributes to the audit table."""

    title: str
    value: Callable[[Report], float | None]
    show: Callable[[float], str]
    """How it is written: one of the formats in :mod:`..words`."""
    priority: int = 0
    """Where the terminal is narrow, columns that decide nothing are dropped, high numbers first."""
    text: Callable[[Report], str] | None = None
    """What stands in a row where that says more than the number: 1/4."""
    key: str = ""
    """The diagnostic; set by :func:`pytest_fadiag.judge.diagnostics.columns`."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What a diagnostic draws of one report over the layers; ``None`` was not measured."""

    ys: Sequence[float | None]
    xs: Sequence[float] | None = None
    """The layers; 0, 1, … where they are not given."""
    decisive: tuple[int, ...] | None = None
    """The indices of the points by which it fires; the last one where they are not given."""
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    """The band of a null, or the intervals of parts."""
    parts: tuple[str, ...] = ()
    """The names of the parts, where these are in the place of layers."""
    bp: tuple[int, ...] = ()
    """The indices of the parts of which the step is BP's own."""
    null: Sequence[float] = ()
    """The same numbers with re-initialised blocks."""
    limit: Sequence[float] = ()
    """What each layer after the first may not exceed; drawn for a network alone."""
    limit_name: str = ""
    level: float | None = None
    """The threshold, where it is one level for all layers."""


class Diagnostic(ABC):
    """All of one diagnostic; it reads a report and keeps no state.

    The built-in ones and those of other packages are instances of subclasses alike.
    """

    key: ClassVar[str]
    """A letter if it is built in, else its name."""
    name: ClassVar[str]
    question: ClassVar[str]
    threshold: ClassVar[str]
    """The name of the threshold that decides."""
    default: ClassVar[float | None] = None
    """The value of that threshold, where it is no field of ``DiagnosticThresholds``."""
    fails_if: ClassVar[str] = ""
    """When it fires, with {} in place of the threshold: «margin < {} pp»."""
    walk_back: ClassVar[str]
    """What the published verdict says when it fired."""
    meaning: ClassVar[str] = ""
    """What its number says about a network, in a sentence or two for the page."""
    instead: ClassVar[str] = ""
    """What to write, or to leave out of a paper, where it fired."""

    role: ClassVar[Role] = Role.WHERE_ASKED
    needs: ClassVar[tuple[str, ...]]
    """The metrics that measure what it judges, by name."""
    needs_stream: ClassVar[bool] = True
    needs_reference: ClassVar[bool] = False
    """Whether it rests on a proven BP gradient."""
    needs_control: ClassVar[bool] = False
    needs_credit: ClassVar[bool] = False
    reads_logs: ClassVar[bool] = False
    """Whether a training log may hold what it judges."""
    by_default: ClassVar[bool] = True
    """Whether it runs where nothing was asked for and what it needs was supplied."""
    asks_for_depth: ClassVar[bool] = False
    """Whether BP networks that do not pass it either show that the task needs no depth."""
    stops_training: ClassVar[bool] = False
    """Whether a guard stops a run by it where nothing was asked for."""
    over_seeds: ClassVar[bool] = False
    """Whether its margin is tested over the seeds of a method too."""
    published: ClassVar[Mapping[str, str]] = {}
    """The published forms of the protocol that keep it, and what each calls it."""

    columns: ClassVar[tuple[Column, ...]] = ()
    """The last one is the number that decides: it has the letter, the rule and the mark."""
    axis_title: ClassVar[str] = ""
    """What its number is called in a chart of networks; empty for the label."""
    curve_title: ClassVar[str] = ""
    """What its curve over the layers is called; empty where it has none. {score} is the score."""
    parts_title: ClassVar[str] = ""
    """What a curve over parts is called."""
    curve_log: ClassVar[bool] = False
    figure: ClassVar[str] = ""
    """The name of the figure that has its curves in one panel for each method."""

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__ and "key" not in cls.__dict__:
            cls.key = cls.name

    @property
    def label(self) -> str:
        """«(a) residual-growth», or the name alone."""
        return self.name if self.key == self.name else f"({self.key}) {self.name}"

    @property
    def draws_numbers(self) -> bool:
        """Whether its number is drawn for each network: a curve over the layers may say it all."""
        return bool(self.axis_title) or not self.curve_title

    @abstractmethod
    def judge(self, report: Report) -> Finding:
        """Pass, fire, or not measured, with the number and its reason."""

    def by_point(self, report: Report) -> Finding:
        """The finding by the published rule, which knows no interval."""
        return report.finding(self.key)

    @abstractmethod
    def lines(self, report: Report) -> Iterable[str]:
        """The other measured numbers, as lines of the report."""

    def table(self, report: Report) -> Sequence[str]:
        """The numbers that a failing test shows too, by state where there are states."""
        return ()

    def remarks(self, report: Report) -> Iterator[str]:
        """What a reader of a report that was asked for it must know apart from its finding."""
        yield from ()

    def check(self, report: Report) -> None:  # noqa: B027 (most have nothing to check)
        """Raise an ``AuditError`` where a report that was asked for it holds nothing to judge."""

    def is_shown(self, report: Report) -> bool:
        """Whether its numbers are shown where it was not asked for."""
        return False

    def curve(self, report: Report) -> Curve | None:
        """What it draws over the layers; ``None`` where nothing was measured."""
        return None

    def gain_of(self, twin: Twin) -> float | None:
        """What BP networks gain by this number, in pp; ``None`` where it was not measured."""
        return None

    def limit(self, report: Report) -> float:
        """The threshold that decides, as this report has it."""
        value = getattr(report.thresholds, self.threshold, self.default)
        return float(report.thresholds.others.get(self.threshold, value))  # type: ignore[arg-type]

    def unmeasured(self, report: Report, why: str, error: str = "", remedy: str = "") -> Finding:
        """A finding that there is no number, and why."""
        finding = self.finding(report, Status.NOT_MEASURED, headline=why, remedy=remedy)
        if error:
            return msgspec.structs.replace(finding, error=error, open=Open(OpenKind.ERROR))
        return finding

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
        walk_back: str = "",
        interval: tuple[float, float] | None = None,
        exempted: bool = False,
        certain: bool = False,
        pass_open: Open | None = None,
        remedy: str = "",
    ) -> Finding:
        """A finding against the report's own threshold.

        With doubts a pass or a fire is only likely. Without a claim, what fired is the walk-back;
        without a remedy, ``instead`` is written. ``pass_open`` is what keeps a pass from deciding.
        """
        doubts = tuple(doubts)
        if doubts:
            status = {Status.PASS: Status.LIKELY_PASS, Status.FIRE: Status.LIKELY_FIRE}[status]
        if status in (Status.FIRE, Status.LIKELY_FIRE):
            claim = claim or self.walk_back
            walk_back = walk_back or self.walk_back
            remedy = remedy or self.instead
            headline = f"{claim}: {headline}" if headline else claim
        open_ = pass_open if status is Status.PASS else None
        if status in OPEN_KINDS:
            open_ = Open(OPEN_KINDS[status])
            if report.log is not None:
                remedy = remedy or RECORD
        return Finding(
            key=self.key,
            name=self.name,
            status=status,
            value=value,
            threshold=self.limit(report),
            interval=interval,
            headline=headline,
            claim=claim,
            walk_back=walk_back,
            explanation=explanation,
            causes=(*causes, *doubts),
            exempted=exempted,
            certain=certain,
            open=open_,
            remedy=remedy,
        )
