"""The test of a method over its seeds: ``<method>::seed-margin``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError, AuditFailure
from .auditor import AUDITOR
from .expect import SHORT
from .seedgroups import SEED_MARGIN, SeedGroup, seed_groups

if TYPE_CHECKING:
    from ..judge.report import DiagnosticReport
    from ..judge.seed_report import SeedReport
    from .auditor import Auditor
    from .targets import Target

GROUP: pytest.StashKey[SeedGroup] = pytest.StashKey()
SEEDS: pytest.StashKey[SeedReport] = pytest.StashKey()
EXPECTED: pytest.StashKey[str] = pytest.StashKey()
NO_CONTROL = (
    "no frozen-random control was supplied; supply one with --fa-frozen=ACCURACY, METHOD=ACCURACY or control checkpoints"
)


@pytest.mark.fa_protocol
def over_seeds(request: pytest.FixtureRequest) -> None:
    """The body of every seed-margin test; what is not in the cache is measured here, so that it waits for no other test."""
    __tracebackhide__ = True
    auditor: Auditor = request.config.stash[AUDITOR]
    group = request.node.stash[GROUP]
    report = _judged(request, auditor, group)
    request.node.stash[SEEDS] = report
    found = report.margin
    values = {"method": report.method, "status": found.verdict.value, "value": found.margin, "threshold": found.minimum}
    request.node.user_properties += [(f"fa_{name}", value) for name, value in (values | {"seeds": found.seeds}).items()]
    check(request, auditor, group, report)


class SeedCollector(pytest.Collector):
    """One method; its only child is the test of its margin over its seeds."""

    group: SeedGroup

    @classmethod
    def made(cls, session: pytest.Session, group: SeedGroup) -> SeedCollector:
        """A collector whose id is the method."""
        newest = Path(group.targets[-1].path)  # --nf asks for the time of an existing file
        path = session.config.rootpath if group.targets[0].kind == "recorded" else newest
        collector: SeedCollector = cls.from_parent(session, name=group.name, nodeid=group.name, path=path)
        collector.group = group
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        item: SeedItem = SeedItem.from_parent(self, name=SEED_MARGIN, callobj=over_seeds)
        item.stash[GROUP] = self.group
        yield item


class SeedItem(pytest.Function):
    """The margin of one method over its seeds."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, 0, f"{self.stash[GROUP].name} {self.name}"


def collected(session: pytest.Session, auditor: Auditor) -> list[SeedCollector]:
    """The methods of a run whose margin over seeds is tested; it belongs to frozen-margin and runs with it."""
    targets, wanted = auditor.targets, auditor.targets.margins
    if "d" not in auditor.settings.diagnostics:
        return []
    # Of a checkpoint that is named for one of its diagnostics no other test is meant; of a recorded one, those that it had.
    whole = [target for target in targets.generated if (targets.selection or {}).get(target.path) is None]
    whole = [target for target in whole if target.kind != "recorded" or _had_margin(auditor, target)]
    groups = seed_groups(whole if wanted is None else targets.known)
    return [SeedCollector.made(session, group) for group in groups if wanted is None or group.name in wanted]


def _had_margin(auditor: Auditor, target: Target) -> bool:
    outcomes = auditor.merged.rows[target.path].outcomes
    return not outcomes or "d" in outcomes


def _judged(request: pytest.FixtureRequest, auditor: Auditor, group: SeedGroup) -> SeedReport:
    from ..judge.seed_report import SeedReport

    thresholds = auditor.settings.thresholds()
    reports: list[DiagnosticReport] = []
    for target in group.targets:
        if target.kind == "recorded" and auditor.merged.rows[target.path].outcomes.get("d") == "error":
            raise AuditError(auditor.merged.rows[target.path].reason or f"{target.id} was not judged in the recorded audit")
        try:
            report, problem = auditor.report(request, auditor.handle(target), thresholds)
        except AuditError as error:
            named = target.path in str(error) or target.id in str(error)
            raise AuditError(str(error) if named else f"{target.id}: {error}") from error
        if problem is not None:
            raise problem
        if report.companions.nonfinite_logits:
            raise AuditError(f"{target.id}: its logits are not finite, so that this seed has no margin")
        if report.frozen_baseline_acc is None:
            pytest.skip(NO_CONTROL)
        if report.headline_acc is None:
            pytest.skip(f"{target.id} has no accuracy")
        reports.append(report)
    return SeedReport.of(reports, reports[0].thresholds.frozen_acc_margin_pp)


def check(request: pytest.FixtureRequest, auditor: Auditor, group: SeedGroup, report: SeedReport) -> None:
    """Raise unless the margin clears the minimum, or is what somebody recorded of it."""
    __tracebackhide__ = True
    from ..judge.margins import SeedVerdict

    found = report.margin.verdict
    expected = _expected(auditor, group, report)
    if expected is not None:
        request.node.stash[EXPECTED] = expected
    short = found is not SeedVerdict.PASS
    known = expected in (found.value, SHORT) if short else expected in (None, found.value)
    if expected is not None and not known:
        change = f"changed from {expected} to {report.headline}"
        advice = "renew the record of --fa-expect (--fa-update-expect) if that is right"
        raise AuditFailure(f"{report}\nCHANGED: {SEED_MARGIN} {change}\n  {advice}", change)
    if short and known:
        reason = f"expected: {report.headline}"
        request.node.add_marker(pytest.mark.xfail(strict=True, raises=AuditFailure, reason=reason), append=False)
    elif found is SeedVerdict.INCONCLUSIVE and auditor.settings.inconclusive == "skip":
        pytest.skip(f"{report.headline}; {report.margin.needed()}")
    if short:
        raise AuditFailure(str(report), _headline(report))


def _expected(auditor: Auditor, group: SeedGroup, report: SeedReport) -> str | None:
    """The recorded verdict of a margin; SHORT where only the letter d of all its seeds is recorded."""
    if auditor.settings.updates_expect:
        return report.margin.verdict.value
    if any(target.kind == "recorded" for target in group.targets) and auditor.expectations is None:
        return auditor.merged.expected_margin(group.name, [auditor.merged.rows[target.path] for target in group.targets])
    return None if auditor.expectations is None else auditor.expectations.of_margin(group.name, report.reports)


def _headline(report: SeedReport) -> str:
    from ..judge.margins import SeedVerdict

    decide = f"; {report.margin.needed()}" if report.margin.verdict is SeedVerdict.INCONCLUSIVE else ""
    return f"{report.headline}{decide}"


def margin_row(item: pytest.Item, report: pytest.TestReport) -> dict[str, Any] | None:
    """What the summary keeps of a seed-margin test: plain values."""
    from ..show.document import margin_values

    group = item.stash.get(GROUP, None)
    if group is None or (report.passed and report.when != "call"):
        return None
    judged = item.stash.get(SEEDS, None)
    outcome = "xfailed" if hasattr(report, "wasxfail") else str(report.outcome)
    if outcome == "failed" and judged is None:
        outcome = "error"
    failed = outcome in ("failed", "error")
    return {
        "name": group.name,
        "method": group.method if judged is None else judged.method,
        "partial": group.partial,
        "outcome": outcome,
        "reason": getattr(getattr(report.longrepr, "reprcrash", None), "message", "") if failed else "",
        "expected": item.stash.get(EXPECTED, None),
        "margin": None if judged is None else margin_values(judged.margin),
    }
