"""What became of a row as a value: every output decides by it, and says it by the same few words."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..judge.diagnostics import CONTROLLED, DIAGNOSTICS, DepthUtility, Diagnostics
from ..judge.keys import Keys
from ..judge.protocol import published
from ..judge.report import DiagnosticReport
from ..judge.verdict import (
    DECIDED,
    INCOMPLETE,
    QUESTIONED,
    TRUSTWORTHY,
    left_open,
    not_walked_back,
    state,
    walk_back,
)

LIKELY = "likely"
"""Before the keys of what passes as far as a log tells."""


NONE = Keys()


class Outcome(str, enum.Enum):
    """What became of one test."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    ERROR = "error"
    NOT_RUN = "not run"
    LEFT = "left to --fa-merge"
    """A margin over seeds of which a part of an audit sees some seeds only."""

    def __str__(self) -> str:
        return self.value


class Standing(enum.Enum):
    """Where a row stands: the word, its colour, the symbol that says it without colour, and what it means."""

    WALK_BACK = ("walk-back", "red", "✗", "a diagnostic fired")
    TRUSTWORTHY = (TRUSTWORTHY, "green", "✓", "nothing fired, and everything was measured that this needs")
    INCOMPLETE = (INCOMPLETE, "yellow", "–", "nothing fired, but not everything was measured that this needs")

    def __init__(self, word: str, colour: str, symbol: str, meaning: str) -> None:
        self.word, self.colour, self.symbol, self.meaning = word, colour, symbol, meaning


@dataclass(frozen=True)
class RowStatus:
    """What a run says of one checkpoint or log; diagnostics are named by their keys, in their order."""

    standing: Standing
    reported: bool = False
    """Whether there is a report, and a test that judged it."""
    fired: Keys = NONE
    passed: Keys = NONE
    likely: Keys = NONE
    """Which of these are only likely, since a bound or a number in the place of another decides them."""
    excused: Keys = NONE
    """Which passed although their number crosses its threshold."""
    unmeasured: Keys = NONE
    undecided: Mapping[str, str] = field(default_factory=dict)
    """Why a row of which nothing fired is not trustworthy: by key what became of the diagnostic, such as «not measured»."""
    broken: Keys = NONE
    """Those whose test ended in an error; what fired is among what fired all the same."""
    not_run: Keys = NONE
    expected: Keys | None = None
    """What was expected to fire, where somebody recorded it."""
    as_expected: bool | None = None
    """Whether what fired is what was expected, as far as it ran; nothing where that was not put to the test."""
    published: str = ""
    """What the published form of the protocol says by which the row is judged, if it is by one."""
    reason: str = ""
    """What an error said."""
    available: Diagnostics = field(default=DIAGNOSTICS, repr=False, compare=False)
    """All that there are."""

    @classmethod
    def of(
        cls, report: DiagnosticReport | None, outcomes: Mapping[str, Outcome], expected: Keys | None, reason: str
    ) -> RowStatus:
        """The status of a row; without outcomes a test asked for the whole report, and all diagnostics ran."""
        broken = Keys.of(key for key, outcome in outcomes.items() if outcome is Outcome.ERROR)
        not_run = Keys.of(key for key, outcome in outcomes.items() if outcome is Outcome.NOT_RUN)
        own = {} if report is None else {finding.key: finding for finding in report.findings}
        ran = Keys.of(key for key in _told(report, outcomes) or own if key not in not_run)
        findings = {key: own[key] for key in ran if key in own}
        # What fired stands even where its test broke; what broke cannot pass.
        judged = {key: finding for key, finding in findings.items() if finding.fired or key not in broken}
        fired = Keys.of(key for key, finding in judged.items() if finding.fired)
        unmeasured = Keys.of(key for key, finding in judged.items() if not finding.measured)
        passed = Keys.of(key for key in judged if key not in fired and key not in unmeasured)
        likely = Keys.of(key for key, finding in judged.items() if finding.measured and not finding.exact)
        states = {
            **({} if report is None else {key: state(report, judged[key]) for key in (*passed, *unmeasured)}),
            **dict.fromkeys(not_run, "not run"),
            **dict.fromkeys(broken, "error"),
        }
        available = DIAGNOSTICS if report is None else report.available
        undecided = {} if fired else left_open(available, states, "not run")
        standing = Standing.WALK_BACK if fired else Standing.INCOMPLETE if undecided else Standing.TRUSTWORTHY
        as_expected = None
        if findings and expected is not None:
            compared = Keys.of(key for key in fired if outcomes.get(key) is not Outcome.SKIPPED)  # what no record knows is
            same = compared == Keys.of(key for key in expected if key in ran)
            tested = bool(fired or passed) and compared == fired  # no record expects what fired beside what it knows
            tested &= not any(outcomes.get(key) is Outcome.FAILED for key in fired)  # nor did another test of the row
            as_expected = None if same and not tested else same
        return cls(
            standing=standing,
            reported=bool(findings),
            fired=fired,
            passed=passed,
            likely=likely,
            excused=Keys.of(key for key in passed if judged[key].excused),
            unmeasured=unmeasured,
            undecided=undecided,
            broken=broken,
            not_run=not_run,
            expected=expected,
            as_expected=as_expected,
            published=""
            if report is None
            else published(report.protocol, fired, (*fired, *(key for key in passed if states[key] == DECIDED))),
            reason=reason,
            available=available,
        )

    @property
    def judged(self) -> Keys:
        """The diagnostics of which there is a finding that counts."""
        return Keys.of([*self.fired, *self.passed, *self.unmeasured])

    @property
    def absent(self) -> Keys:
        """The diagnostics without a number: not measured, or needed and not part of the run."""
        without = {key for key, state in self.undecided.items() if state in ("not measured", "not run")}
        return Keys.of(without.union(self.unmeasured) - set(self.not_run))

    @property
    def questioned(self) -> Keys:
        """The diagnostic that passes over a control of another network, where nothing stands in for it."""
        return Keys.of(key for key, state in self.undecided.items() if state in QUESTIONED)

    @property
    def is_alarming(self) -> bool:
        """Whether something fired, or nothing came of tests that broke or did not run."""
        return bool(self.fired or ((self.broken or self.not_run) and not self.passed))


def _told(report: DiagnosticReport | None, outcomes: Mapping[str, Outcome]) -> list[str]:
    """The diagnostics that tests were about: that of (d) is about (e) too, where the control that was supplied is none."""
    stands_in = CONTROLLED in outcomes and report is not None and report.lacks_usable_control
    return [*outcomes, *([DepthUtility.key] if stands_in else [])]


def in_words(status: RowStatus, mark: str = "*") -> str:
    """The status in a few words, such as «walk-back a b? d*»; the mark stands behind what is as expected."""
    if not status.reported:
        error = f"error: {status.reason}" if status.reason else "error"
        return error if status.broken else "not run" if status.not_run else "skipped"
    parts = [status.standing.word]
    if status.fired:
        parts = [_listed("walk-back", (f"{key}?" if key in status.likely else key for key in status.fired))]
    if status.as_expected:
        parts[0] += mark
    elif status.as_expected is False:
        parts.append(f"(expected {' '.join(status.expected or NONE) or 'none'})")
    if status.standing is not Standing.WALK_BACK:
        parts.append(_listed(LIKELY, (key for key in status.passed if key in status.likely)))
    parts.append(_listed("questioned", status.questioned))
    parts += [_listed("error", status.broken), _listed("not run", status.not_run), _listed("no", status.absent)]
    parts.append(f"[{status.published}]" if status.published else "")
    return " ".join(filter(None, parts))


def with_published(status: RowStatus) -> str:
    """The same, and beside it what a published form says of the row: «needs walk-back: … [FAIL(D1+D2)]»."""
    said = in_a_sentence(status)
    return f"{said} [{status.published}]" if status.published and status.reported else said


def _listed(word: str, keys: Iterable[str]) -> str:
    """A word with its keys, «pass a b», or nothing without one."""
    named = list(keys)
    return " ".join([word, *named]) if named else ""


def in_a_sentence(status: RowStatus) -> str:
    """The status as the verdict of a report reads: «needs walk-back: …», «incomplete: …» or «trustworthy»."""
    if not status.reported:
        return in_words(status)
    if status.fired:
        return walk_back(status.available, status.fired, status.likely)
    return not_walked_back(status.available, status.undecided)
