"""The test of a method over its seeds: ``<method>::seed-margin``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

import pytest

from ..bench import NotAtHand
from ..judge.diagnostics import CONTROLLED
from ..judge.diagnostics.frozen_margin import void
from ..judge.errors import AuditChange, AuditError, AuditFailure
from ..judge.margins import SeedVerdict
from ..judge.report import DiagnosticReport
from ..judge.seed_report import SeedReport
from ..show.audit import MarginRow
from ..show.document import margin_values
from ..show.status import Outcome
from .expect import SHORT, short_by_letters
from .fixtures import overrides_of
from .outcome import MARGIN, Decision, failure_text, name_skip, outcome_of, reason_of
from .run import Overrides, Run
from .targets import SEED_MARGIN, SeedGroup, seed_groups

NO_CONTROL = (
    "no frozen-random control was supplied; supply one with --fa-frozen=ACCURACY, METHOD=ACCURACY or control checkpoints"
)
NOT_AT_HAND = (
    "a conftest replaces what networks are measured with, so that only the tests of single checkpoints measure, and their "
    "numbers are not in this process: run them in one (-n 0), or leave the margin over seeds out (--deselect)"
)


RENEW = "renew the record of --fa-expect (--fa-update-expect) if that is right"


class SeedCollector(pytest.Collector):
    """One method; its only child is the test of its margin over its seeds."""

    run: Run
    group: SeedGroup

    @classmethod
    def of(cls, session: pytest.Session, run: Run, group: SeedGroup) -> SeedCollector:
        """A collector whose id is the method."""
        path = group.targets[-1].file or session.config.rootpath  # --nf asks for the time of an existing file
        collector: SeedCollector = cls.from_parent(session, name=group.name, nodeid=group.name, path=path)
        collector.run, collector.group = run, group
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        item: SeedItem = SeedItem.from_parent(self, name=SEED_MARGIN, callobj=over_seeds)
        item.run, item.group = self.run, self.group
        yield item


class SeedItem(pytest.Function):
    """The margin of one method over its seeds."""

    run: Run
    group: SeedGroup
    judged: SeedReport | None = None
    expected: str | None = None

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, 0, f"{self.group.name} {self.name}"


@pytest.mark.fa_protocol
def over_seeds(request: pytest.FixtureRequest) -> None:
    """The body of every seed-margin test; what is not in the cache is measured here, so that it waits for no other test."""
    __tracebackhide__ = True
    item: SeedItem = request.node
    overrides = overrides_of(item.run, request)
    # A fixture gives one value a test, and a margin over seeds would need one for each of its checkpoints.
    given = replace(overrides.given, at_hand=not overrides.given.identity)
    item.judged = report = _judged(item, replace(overrides, given=given, depth_instead=False))
    margin = report.margin
    values = {"method": report.method, "status": margin.verdict.value, "value": margin.margin, "threshold": margin.minimum}
    item.user_properties += [(f"fa_{name}", value) for name, value in (values | {"seeds": margin.seeds}).items()]
    check(item, report)


def collectors(session: pytest.Session, run: Run) -> list[SeedCollector]:
    """The methods of a run whose margin over seeds is tested; it belongs to frozen-margin and runs with it."""
    targets = run.targets
    if CONTROLLED not in run.settings.diagnostics:
        return []
    if run.settings.form is not None and not run.settings.form.over_seeds and targets.margins is None:
        return []
    if targets.margins is not None:
        groups = [group for group in seed_groups(targets.named) if group.name in targets.margins]
    else:
        # Of a checkpoint that is named for one of its diagnostics no other test is meant; of a recorded one, those it had.
        whole = [target for target in targets.generated if (targets.only or {}).get(target.path) is None]
        groups = seed_groups(target for target in whole if target.keys is None or CONTROLLED in target.keys)
    return [SeedCollector.of(session, run, group) for group in groups]


def _judged(item: SeedItem, overrides: Overrides) -> SeedReport:
    thresholds = item.run.settings.thresholds()
    reports: list[DiagnosticReport] = []
    for target in item.group.targets:
        try:
            report, problems = item.run.report(target, thresholds, item.run.settings.available.select(CONTROLLED), overrides)
        except NotAtHand:
            raise AuditError(NOT_AT_HAND) from None
        except AuditError as error:
            named = target.path in str(error) or target.id in str(error)
            raise AuditError(str(error) if named else f"{target.id}: {error}") from error
        problem = problems.get(CONTROLLED)
        if problem is not None and not isinstance(problem, AuditChange):  # a change of a seed's margin is its own test's
            raise problem
        if report.companions.nonfinite_logits:
            raise AuditError(f"{target.id}: its logits are not finite, so that this seed has no margin")
        if report.frozen_baseline_acc is None:
            _not_measured(item, NO_CONTROL)
        if (none := void(report)) is not None:
            _not_measured(item, f"{target.id}: {none.text}")
        if report.headline_acc is None:
            _not_measured(item, f"{target.id} has no accuracy")
        reports.append(report)
    return SeedReport.of(reports, reports[0].thresholds.frozen_acc_margin_pp)


def _not_measured(item: SeedItem, why: str) -> NoReturn:
    """Skip a margin that cannot be told; where one is recorded, that is a change."""
    item.expected = None if item.run.settings.updates_expect else _recorded(item)
    if item.expected is None:
        pytest.skip(why)
    change = f"changed from {item.expected} to not measured: {why}"
    raise AuditChange(f"CHANGED: {SEED_MARGIN} {change}\n  {RENEW}", change)


def decide(verdict: SeedVerdict, expected: str | None) -> Decision:
    """What becomes of the test of a margin; ``expected`` is a recorded verdict, or that it falls short."""
    short = verdict is not SeedVerdict.PASS
    if expected is None:
        return Decision.FAIL if short else Decision.PASS
    if short:
        return Decision.EXPECTED if expected in (verdict.value, SHORT) else Decision.CHANGED
    return Decision.PASS if expected == verdict.value else Decision.CHANGED


def check(item: SeedItem, report: SeedReport) -> None:
    """Raise unless the margin clears the minimum, or is what somebody recorded of it."""
    __tracebackhide__ = True
    item.expected = _expected(item, report)
    verdict, to_decide = report.margin.verdict, report.margin.needed()
    decision = decide(verdict, item.expected)
    if decision is Decision.CHANGED:
        change = f"changed from {item.expected} to {report.headline}"
        raise AuditChange(f"{report}\nCHANGED: {SEED_MARGIN} {change}\n  {RENEW}", change)
    if decision is Decision.EXPECTED:
        reason = f"expected: {report.headline}"
        item.add_marker(pytest.mark.xfail(strict=True, raises=AuditFailure, reason=reason), append=False)
    elif verdict is SeedVerdict.INCONCLUSIVE and item.run.settings.inconclusive == "skip":
        pytest.skip(f"{report.headline}; {to_decide}")
    if decision is not Decision.PASS:
        raise AuditFailure(str(report), f"{report.headline}; {to_decide}" if to_decide else report.headline)


def _expected(item: SeedItem, report: SeedReport) -> str | None:
    """The recorded verdict of a margin; SHORT where only the letter d of all its seeds is recorded."""
    run = item.run
    if run.settings.updates_expect:
        return report.margin.verdict.value
    if run.merged is None and run.expectations is None:
        return None
    return _recorded(item) or short_by_letters([seed.expected for seed in report.reports])


def _recorded(item: SeedItem) -> str | None:
    """The recorded verdict of a margin by its name."""
    recorded = item.run.merged if item.run.expectations is None else item.run.expectations
    return None if recorded is None else recorded.margins.get(item.group.name)


def annotate(item: SeedItem, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Give the report of a margin over seeds its text and its row."""
    text = failure_text(item, call.excinfo.value if call.excinfo else None) if report.failed else None
    if text is not None:
        report.longrepr = text  # type: ignore[assignment]
    name_skip(report, item.group.name)
    if report.passed and report.when != "call":
        return
    outcome = outcome_of(report, judged=item.judged is not None)
    row = MarginRow(
        name=item.group.name,
        method=item.group.method if item.judged is None else item.judged.method,
        partial=item.group.partial,
        margin=None if item.judged is None else item.judged.margin,
        outcome=Outcome(outcome),
        reason=reason_of(report, outcome),
        expected=item.expected,
    )
    setattr(report, MARGIN, margin_values(row))
