"""What became of a row as a value: every output decides by it, and says it by the same few words."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ..judge.diagnostics import DIAGNOSTICS
from ..judge.report import DiagnosticReport
from ..judge.verdict import TRUSTWORTHY, left_open, walk_back

LIKELY_PASS = "likely-pass"
"""Before the keys of what passes as far as a log tells."""


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
    """Where a row stands: the word, the symbol that says it without colour, and what it means."""

    WALK_BACK = ("walk-back", "✗", "a diagnostic fired")
    TRUSTWORTHY = ("trustworthy", "✓", "nothing fired")
    PARTIAL = ("partial", "◐", "nothing fired, but the log leaves something open")
    INCOMPLETE = ("incomplete", "–", "not every diagnostic could be judged")

    def __init__(self, word: str, symbol: str, meaning: str) -> None:
        self.word, self.symbol, self.meaning = word, symbol, meaning


@dataclass(frozen=True)
class RowStatus:
    """What a run says of one checkpoint or log; diagnostics are named by their keys, in the order of the registry."""

    standing: Standing
    reported: bool = False
    """Whether there is a report, and a test that judged it."""
    fired: str = ""
    passed: str = ""
    likely: str = ""
    """Which of these are only likely, since a bound or a number in the place of another decides them."""
    excused: str = ""
    """Which passed although their number crosses its threshold."""
    unmeasured: str = ""
    broken: str = ""
    """Those whose test ended in an error; what fired is among what fired all the same."""
    not_run: str = ""
    expected: str | None = None
    """What was expected to fire, where somebody recorded it."""
    as_expected: bool | None = None
    """Whether what fired is what was expected, as far as it ran; nothing where that was not put to the test."""
    reason: str = ""
    """What an error said."""

    @classmethod
    def of(
        cls, report: DiagnosticReport | None, outcomes: Mapping[str, Outcome], expected: str | None, reason: str
    ) -> RowStatus:
        """The status of a row; without outcomes a test asked for the whole report, and all diagnostics ran."""
        keys = [diagnostic.key for diagnostic in DIAGNOSTICS]
        broken = _joined(keys, lambda key: outcomes.get(key) is Outcome.ERROR)
        not_run = _joined(keys, lambda key: outcomes.get(key) is Outcome.NOT_RUN)
        own = {} if report is None else {finding.key: finding for finding in report.findings}
        ran = _joined(keys, lambda key: key in outcomes and key not in not_run if outcomes else key in own)
        findings = {key: own[key] for key in ran if key in own}
        # What fired stands even where its test broke; what broke cannot pass.
        judged = {key: finding for key, finding in findings.items() if finding.fired or key not in broken}
        fired = _joined(judged, lambda key: judged[key].fired)
        unmeasured = _joined(judged, lambda key: not judged[key].measured)
        passed = _joined(judged, lambda key: key not in fired + unmeasured)
        likely = _joined(judged, lambda key: judged[key].measured and not judged[key].exact)
        if fired:
            standing = Standing.WALK_BACK
        elif report is None or broken or len(ran) < len(keys):
            standing = Standing.INCOMPLETE
        else:
            standing = Standing.PARTIAL if report.partial and likely + unmeasured else Standing.TRUSTWORTHY
        as_expected = None
        if findings and expected is not None:
            same = set(fired) == set(expected) & set(ran)
            as_expected = None if same and not fired + passed else same
        return cls(
            standing=standing,
            reported=bool(findings),
            fired=fired,
            passed=passed,
            likely=likely,
            excused=_joined(passed, lambda key: judged[key].excused),
            unmeasured=unmeasured,
            broken=broken,
            not_run=not_run,
            expected=expected,
            as_expected=as_expected,
            reason=reason,
        )

    @property
    def judged(self) -> str:
        """The diagnostics of which there is a finding that counts."""
        return "".join(sorted(self.fired + self.passed + self.unmeasured))

    @property
    def lists_passes(self) -> bool:
        """Whether the words name what passed: not beside what fired, nor where all did."""
        return not self.fired and self.standing is not Standing.TRUSTWORTHY

    @property
    def is_alarming(self) -> bool:
        """Whether something fired, or nothing came of tests that broke or did not run."""
        return bool(self.fired or ((self.broken or self.not_run) and not self.passed))


def _joined(keys: Iterable[str], fits: Callable[[str], bool]) -> str:
    return "".join(key for key in keys if fits(key))


def in_words(status: RowStatus, mark: str = "*") -> str:
    """The status in a few words, such as «walk-back a b? d*»; the mark stands behind what is as expected."""
    if not status.reported:
        error = f"error: {status.reason}" if status.reason else "error"
        return error if status.broken else "not run" if status.not_run else "skipped"
    parts = [TRUSTWORTHY]
    if status.fired:
        parts = [_listed("walk-back", (f"{key}?" if key in status.likely else key for key in status.fired))]
    elif status.lists_passes:
        exact, likely = ([key for key in status.passed if (key in status.likely) is only] for only in (False, True))
        parts = [part for part in (_listed("pass", exact), _listed(LIKELY_PASS, likely)) if part]
    if status.as_expected:
        parts[0] += mark
    elif status.as_expected is False:
        parts.append(f"(expected {' '.join(status.expected or '') or 'none'})")
    parts += [_listed("error", status.broken), _listed("not run", status.not_run), _listed("no", status.unmeasured)]
    return " ".join(filter(None, parts))


def _listed(word: str, keys: Iterable[str]) -> str:
    """A word with its keys, «pass a b», or nothing without one."""
    named = list(keys)
    return " ".join([word, *named]) if named else ""


def in_a_sentence(status: RowStatus) -> str:
    """The status as the verdict of a report reads: «needs walk-back: …», «trustworthy», or what is left open."""
    if not status.reported:
        return in_words(status)
    if status.fired:
        return walk_back(status.fired, status.likely)
    if status.standing is Standing.TRUSTWORTHY:
        return TRUSTWORTHY
    undecided = {diagnostic.key: "not run" for diagnostic in DIAGNOSTICS if diagnostic.key not in status.passed}
    undecided |= dict.fromkeys(status.likely, "likely") | dict.fromkeys(status.unmeasured, "not measured")
    return left_open(status.standing.word, undecided | dict.fromkeys(status.broken, "error"))
