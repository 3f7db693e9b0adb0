"""The verdict on one network, made once of its findings: of a report and of a row alike."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping

import msgspec

from .diagnostics import Finding, Open, OpenKind, Role, available
from .words import join_and


class Word(str, enum.Enum):
    """The verdict in a word."""

    WALK_BACK = "walk back"
    TRUSTWORTHY = "trustworthy"
    AS_GIVEN = "trustworthy (reference as given)"
    """The best that a trace gets."""
    INCOMPLETE = "incomplete"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the findings of one network say together; diagnostics are named by their keys."""

    word: Word | None = None
    """``None`` where nothing was judged: an error, a skip, or a run that ended before."""
    fired: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    likely: tuple[str, ...] = ()
    """Which of both are only likely: a log gives a bound, or a proxy of the number."""
    exempted: tuple[str, ...] = ()
    """Which passed although their number crosses its threshold."""
    unmeasured: dict[str, Open] = {}
    """Those without a number that decides, and why."""
    lacking: dict[str, Open] = {}
    """What keeps a network of which nothing fired from being trustworthy."""
    errors: tuple[str, ...] = ()
    """Those whose test was an error; what fired in such a test still counts."""
    not_run: tuple[str, ...] = ()
    sentence: str = ""
    """«needs walk-back: …» with what fired, «incomplete: …» with what lacks, «trustworthy»."""
    headline: str = ""
    """The same in the words of the findings, which claim no more than their intervals."""
    next: str = ""
    """What to do, or to write in a paper; empty where the result is trustworthy."""

    @classmethod
    def of(
        cls,
        findings: Iterable[Finding],
        *,
        errors: Collection[str] = (),
        not_run: Collection[str] = (),
        as_given: bool = False,
    ) -> Verdict:
        """The verdict of these findings, where some tests were errors or did not run.

        What is an error cannot pass, but what fired in its test counts.
        """
        judged = []
        findings = tuple(findings)
        for finding in findings:
            is_halted = finding.key in errors and not finding.fired
            if finding.key not in not_run and not is_halted:
                judged.append(finding)
        if not judged:
            return cls(errors=tuple(errors), not_run=tuple(not_run))
        fired = [finding for finding in judged if finding.fired]
        passed = [finding for finding in judged if finding.passed]
        lacking: dict[str, Open] = {}
        if fired:
            word = Word.WALK_BACK
            headline = _sentence(word.value, [_doubted(f.claim, f) for f in fired])
            sentence = _sentence("needs walk-back", [_doubted(f.walk_back, f) for f in fired])
            remedies = [finding.remedy for finding in fired]
        else:
            reasons = {finding.key: finding.open for finding in judged}
            reasons |= dict.fromkeys(not_run, Open(OpenKind.NOT_RUN))
            reasons |= dict.fromkeys(errors, Open(OpenKind.ERROR))
            lacking = what_lacks(reasons)
            word = Word.AS_GIVEN if as_given else Word.TRUSTWORTHY
            if lacking:
                word = Word.INCOMPLETE
            names = {diagnostic.key: diagnostic.name for diagnostic in available()}
            headline = _sentence(word.value, [f"{names[key]} {lacking[key]}" for key in lacking])
            sentence = headline
            remedies = _remedies(findings, lacking)
        # A remedy may be several steps: a step that two of them have is said once.
        steps = dict.fromkeys(step for remedy in remedies for step in remedy.split("; ") if step)
        return cls(
            word=word,
            fired=tuple(f.key for f in fired),
            passed=tuple(f.key for f in passed),
            likely=tuple(f.key for f in (*fired, *passed) if not f.exact),
            exempted=tuple(f.key for f in passed if f.exempted),
            unmeasured={f.key: f.open for f in judged if f.open and not f.measured},
            lacking=lacking,
            errors=tuple(errors),
            not_run=tuple(not_run),
            sentence=sentence,
            headline=headline,
            next="; ".join(steps),
        )

    @property
    def undecided(self) -> dict[str, Open]:
        """Everything that did not come out, by key, unless it was not needed."""
        undecided = {}
        for key, reason in (self.unmeasured | self.lacking).items():
            if reason.kind is not OpenKind.NOT_NEEDED:
                undecided[key] = reason
        undecided |= dict.fromkeys(self.not_run, Open(OpenKind.NOT_RUN))
        return undecided | dict.fromkeys(self.errors, Open(OpenKind.ERROR))


def what_lacks(reasons: Mapping[str, Open | None]) -> dict[str, Open]:
    """What keeps a result of which nothing fired from being trustworthy, by key.

    ``reasons`` has what keeps each diagnostic that was asked for from deciding, ``None`` where it
    decides. Where a required one lacks a reliable control, the fallback may stand in for it.
    """
    fallbacks = [d.key for d in available() if d.role is Role.FALLBACK and d.key in reasons]
    fallback_decides = any(reasons[key] is None for key in fallbacks)
    margin_lacks = False  # set before it is read: what needs a control comes before the fallback
    lacking = {}
    for diagnostic in available():
        is_asked = diagnostic.key in reasons
        reason = reasons.get(diagnostic.key, Open(OpenKind.NOT_MEASURED))
        if reason is None:
            continue
        is_lacking = diagnostic.role is Role.REQUIRED
        if is_lacking and diagnostic.needs_control:
            margin_lacks = not (fallback_decides and reason.replaceable)
            is_lacking = margin_lacks and (is_asked or not fallbacks)
        if diagnostic.role is Role.FALLBACK:
            is_lacking = margin_lacks and is_asked and reason.kind is not OpenKind.NOT_NEEDED
        if diagnostic.role is Role.WHERE_ASKED:
            is_lacking = is_asked
        if is_lacking or reason.kind.untested:
            lacking[diagnostic.key] = reason
    return lacking


def _sentence(start: str, parts: Iterable[str]) -> str:
    """A verdict with what it rests on."""
    return ": ".join(filter(None, [start, "; ".join(parts)]))


def _doubted(claim: str, finding: Finding) -> str:
    return claim if finding.exact else f"{claim} (likely)"


def _remedies(findings: Iterable[Finding], lacking: Mapping[str, Open]) -> list[str]:
    """What decides each that lacks; errors come first.

    Where the fallback may stand in for a control, its own remedy and a control are alternatives.
    """
    by_key = {finding.key: finding for finding in findings}
    errors = []
    not_run = []
    unmeasured = []
    others = []
    alternatives = []
    for diagnostic in available():
        reason = lacking.get(diagnostic.key)
        finding = by_key.get(diagnostic.key)
        if reason is None:
            continue
        if finding is None or reason.kind is OpenKind.NOT_RUN:
            not_run.append(diagnostic.name)
        elif reason.kind is OpenKind.ERROR:
            mending = f"mend the error of {diagnostic.name}"
            errors.append(finding.error or finding.remedy or mending)
        elif reason.replaceable and diagnostic.needs_control:
            alternatives.append(finding.remedy)
        elif diagnostic.role is Role.FALLBACK:
            alternatives.insert(0, finding.remedy)
        elif finding.remedy:
            others.append(finding.remedy)
        else:
            unmeasured.append(diagnostic.name)
    if not_run:
        errors.append(f"run {join_and(not_run)} too")
    if unmeasured:
        others.append(f"measure {join_and(unmeasured)}")
    if alternatives and not any(alternatives):
        by_control = join_and(d.name for d in available() if d.needs_control)
        alternatives = [f"run {by_control} too, with a control"]
    return [*errors, *others, " or ".join(filter(None, alternatives))]
