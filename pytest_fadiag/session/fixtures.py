"""What the fixtures give to one test, and what a conftest puts in their place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from ..auditor import Overrides
from ..judge.diagnostics import Finding, get, select
from ..judge.errors import AuditError
from ..judge.report import Report
from ..judge.thresholds import DiagnosticThresholds
from ..show.audit import Keys, Margin, Outcome, decide, outcome_of
from ..show.combine import over_seeds
from ..show.report import DiagnosticReport
from .items import AuditItem, gives_credit, overridden
from .outcome import case_of, settle, text_of
from .plan import Job, make_jobs, names_of, required
from .run import Run
from .settings import MARKER, MARKER_KEYS, marked

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from ..judge.control import Control
    from ..load.checkpoint import Checkpoint

MEASURED_WITH = {
    "network": "fa_model",
    "batches": "fa_eval_batches",
    "data": "fa_test_data",
    "device": "fa_device",
    "credit": "fa_credit",
    "step": "fa_step",
}
"""The fixtures whose override changes what is measured."""
FIXTURES = (
    "fa_checkpoint",
    "fa_frozen_baseline",
    "fa_thresholds",
    "fa_report",
    "fa_diagnostic",
    *MEASURED_WITH.values(),
)


class CheckpointUnderTest:
    """What ``fa_checkpoint`` gives: ``path`` and ``id``, and read on demand ``method``,
    ``state_dict``, ``config``, ``test_acc``.
    """

    def __init__(self, run: Run, job: Job) -> None:
        self.job = job
        self.path = Path(job.path)
        self.id = job.id
        self._run = run

    def __repr__(self) -> str:
        return f"<checkpoint {self.id}>"

    @cached_property
    def contents(self) -> Checkpoint:
        """The file, read without running code from it."""
        return self._run.auditor.checkpoint(self.path)

    @property
    def seed(self) -> int | None:
        """The seed of the training run, where the file or its name tells it."""
        return self.job.seed if self.contents.seed is None else self.contents.seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.contents, name)


class ReportUnderTest(DiagnosticReport, frozen=True, kw_only=True):
    """What ``fa_report`` gives: a report that knows what is expected of it."""

    expected: Keys | None = None

    def check(self, expected: Any = None) -> None:
        """Raise an ``AssertionError`` unless exactly the expected diagnostics fire: those of the
        marker or the record.
        """
        __tracebackhide__ = True
        if expected is None:
            expected = self.expected or ()
        super().check(expected)


@dataclass(repr=False, eq=False)
class DiagnosticUnderTest:
    """What ``fa_diagnostic`` gives: one finding (``status``, ``value``, ``threshold``,
    ``headline``) of a ``report``.
    """

    _run: Run
    _node: pytest.Item
    report: Report
    finding: Finding
    outcome: Outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finding, name)

    def check(self) -> None:
        """Raise an ``AssertionError`` if the diagnostic fires, skip if it was not measured.

        A record may say otherwise.
        """
        __tracebackhide__ = True
        case = case_of(self._node)
        recorded = ""
        if case.expected is not None:
            recorded = "pass" if set(case.expected).isdisjoint(case.keys) else "fail"
        headline = self.finding.headline
        if self.finding.claim:  # the number first: the short summary of pytest is cut
            number = headline.removeprefix(self.finding.claim).lstrip(": ")
            headline = f"{number}: {self.finding.claim}".removeprefix(": ")
        if self.outcome is Outcome.SKIPPED and self.finding.remedy:
            headline += f"; {self.finding.remedy}"
        is_repeat = False
        if self.outcome is Outcome.FAILED and case.job is not None:
            nodeid = self._node.nodeid
            is_repeat = self._run.first_failures.setdefault(case.job.id, nodeid) != nodeid
        text = text_of(self.report, case.keys, is_repeat=is_repeat)
        settle(self._node, self.outcome, text, headline, recorded)


def job_for(run: Run, node: Any, value: object) -> Job:
    """The job of what a fixture or a parametrised test calls its checkpoint: the plugin's own
    object, or a path; with the diagnostics of the test.
    """
    if isinstance(value, CheckpointUnderTest):
        return value.job
    if isinstance(value, (str, os.PathLike)):
        settings = run.settings
        paths = [os.fspath(value)]
        jobs = make_jobs(settings, paths, settings.root, "fa_checkpoint", known=run.plan.all_jobs)
        return _with_diagnostics(jobs[0], node)
    if isinstance(value, Job):
        return _with_diagnostics(value, node)
    raise AuditError(
        f"the fixture fa_checkpoint gave a {type(value).__name__}; expected the path of a "
        "checkpoint"
    )


def _with_diagnostics(job: Job, node: Any) -> Job:
    """The job with the diagnostics of a test: those of its marker, else those that were planned."""
    keys = marked(node).get("diagnostics")
    if keys is not None:
        return replace(job, diagnostics=names_of(select(keys)), required=required(keys))
    if not isinstance(node, AuditItem) and gives_credit(node):
        return job.given_credit()
    return job


def jobs_of(run: Run, node: Any) -> list[Job]:
    """What a written test runs over: its marker's checkpoints, else those that the run names."""
    keywords = marked(node)
    settings = run.settings
    paths = keywords.get("checkpoint")
    base = settings.root
    if paths is None and "seeds" in keywords:
        paths = settings.texts.get("checkpoint")
        base = settings.path("checkpoint", "")
    if paths is None:
        jobs = [job for job in run.plan.all_jobs if job.kind != "log"]
    else:
        jobs = make_jobs(
            settings,
            map(os.fspath, paths),
            base,
            f"@pytest.mark.{MARKER}: checkpoint",
            seeds=keywords.get("seeds"),
            known=run.plan.all_jobs,
        )
    if not jobs:
        raise AuditError(
            f"{node.name} needs a checkpoint: add --fa-checkpoint=PATH, fa_checkpoint in the "
            "ini file or "
            f"@pytest.mark.{MARKER}(checkpoint=PATH)"
        )
    if all(job.skip for job in jobs):
        raise AuditError(
            "none of its checkpoints exists; --fa-missing=skip lets some be absent\n  "
            f"{jobs[0].path}"
        )
    return jobs


def checkpoint(run: Run, request: pytest.FixtureRequest) -> CheckpointUnderTest:
    """The checkpoint that a test was parametrised with or generated for."""
    marked(request.node)  # a wrong keyword fails its test
    case = case_of(request.node)
    value = getattr(request, "param", None) or case.job or jobs_of(run, request.node)[0]
    case.job = job_for(run, request.node, value)
    return CheckpointUnderTest(run, case.job)


def _contents(run: Run, node: Any, value: object) -> Checkpoint:
    return CheckpointUnderTest(run, job_for(run, node, value)).contents


def network(run: Run, request: pytest.FixtureRequest, value: object, device: str) -> nn.Module:
    """The network of a test's checkpoint, its tensors loaded."""
    return run.auditor.network(_contents(run, request.node, value)).to(device)


def batches(
    run: Run, request: pytest.FixtureRequest, value: object, model: nn.Module, data: Any
) -> Iterable[Any]:
    """The batches of a test: its data as the network of its checkpoint takes them."""
    return run.auditor.batches(_contents(run, request.node, value), model, data)


def control(run: Run, request: pytest.FixtureRequest, value: object) -> Control | None:
    """The control of --fa-frozen that fits the checkpoint of a test."""
    report = run.margin_report(job_for(run, request.node, value))
    if report.control_problem:
        raise AuditError(report.control_problem)
    return report.control


def thresholds(run: Run, request: pytest.FixtureRequest) -> DiagnosticThresholds:
    """The thresholds of a test: those of the run, then those of its markers."""
    keywords = marked(request.node)
    changes = {name: value for name, value in keywords.items() if name not in MARKER_KEYS}
    return run.settings.thresholds.replace(**changes)


def report(
    run: Run, request: pytest.FixtureRequest, value: object, limits: DiagnosticThresholds
) -> ReportUnderTest:
    """The report of a test's checkpoint.

    What fixtures override is measured in this process and not stored.
    """
    node = request.node
    params = dict(node.callspec.params) if hasattr(node, "callspec") else {}
    job = job_for(run, node, value)
    diagnostics = select(job.diagnostics)
    single = get(str(params.pop("fa_diagnostic", node.name)))
    if single is not None and single not in diagnostics:
        diagnostics = select([*job.diagnostics, single.name])
    case = case_of(node)
    case.job = job
    concerned = diagnostics if single is None else (single,)
    case.keys = tuple(diagnostic.key for diagnostic in concerned)  # should it not be measured

    overrides = Overrides(
        **{
            part: request.getfixturevalue(name)
            for part, name in MEASURED_WITH.items()
            if overridden(node, name)
        }
    )
    control: Any = run.controls or None
    replaces_control = overridden(node, "fa_frozen_baseline") is not None
    if replaces_control:
        control = request.getfixturevalue("fa_frozen_baseline")
    keywords = marked(node)
    listed = keywords.get("diagnostics") or run.settings.diagnostics or run.settings.protocol
    listed = listed or job.required
    params.pop("fa_checkpoint", None)
    names = names_of(diagnostics)
    key = (job.id, node.parent.nodeid, node.function, repr(params), str(limits), names)
    judged_report = run.reports.get(key) or run.report(
        job, diagnostics, limits, control, overrides, listed=bool(listed)
    )
    run.reports[key] = judged_report
    if isinstance(node, AuditItem) and (overrides or replaces_control):
        run.overridden_reports[job.id] = judged_report

    case.report = judged_report
    case.expected = keywords.get("expect", run.expected(job, judged_report))
    case.cached = Path(job.path) in run.auditor.from_cache
    if single is None:
        case.keys = ()  # the test is about the whole report
    return ReportUnderTest.of(judged_report, expected=case.expected)


def diagnostic(run: Run, request: pytest.FixtureRequest, report: Report) -> DiagnosticUnderTest:
    """One diagnostic of a report."""
    node = request.node
    case = case_of(node)
    finding = report.finding(getattr(request, "param", None) or node.name)
    case.keys = (finding.key,)
    _record_properties(
        node,
        method=report.method_name,
        seed=report.seed,
        status=finding.outcome,
        value=finding.value,
        threshold=finding.threshold,
    )
    required_keys = () if case.job is None else case.job.required
    outcome = outcome_of(finding, case.keys, case.expected, required_keys)
    if outcome is Outcome.ERROR:
        raise AuditError(f"{finding.name} cannot be judged: {finding.error or finding.headline}")
    return DiagnosticUnderTest(run, node, report, finding, outcome)


def _record_properties(node: pytest.Item, **values: object) -> None:
    """Give the numbers of a test to JUnit's file and to other plugins."""
    for name, value in values.items():
        if value is not None:
            node.user_properties.append((f"fa_{name}", value))


def margin_over_seeds(run: Run, request: pytest.FixtureRequest) -> None:
    """The test of a method over its seeds.

    What is not in the cache is measured here, so it waits for no other test.
    """
    __tracebackhide__ = True
    node = request.node
    group = node.parent.name
    jobs = run.plan.seeds_of(group)
    recorded = None if run.expectations is None else run.expectations.margins.get(group, "PASS")
    case = case_of(node)
    case.margin = Margin(group, jobs[0].method, jobs[0].kind == "log", expected=recorded)
    result = over_seeds(jobs[0].method, _reports_of_seeds(run, node, jobs))
    if isinstance(result, str):
        settle(node, decide(None, recorded), result, result, recorded or "")
        return
    margin = result.margin
    verdict = margin.verdict.value
    if run.settings.update_expect:
        recorded = verdict
    case.margin = replace(case.margin, method=result.method, margin=margin, expected=recorded)
    _record_properties(
        node,
        method=result.method,
        status=verdict,
        value=margin.margin,
        threshold=margin.minimum,
        seeds=margin.seeds,
    )
    headline = result.headline
    if margin.needed:
        headline += f"; {margin.needed}"
    _, _, text = str(result).partition("\n")  # a heading is its title already
    settle(node, decide(verdict, recorded), text, headline, recorded or "")


def _reports_of_seeds(run: Run, node: pytest.Item, jobs: list[Job]) -> dict[str, Report]:
    """The reports of all seeds by id.

    Where a conftest overrides a fixture, those that the tests of this process made.
    """
    for name in (*MEASURED_WITH.values(), "fa_frozen_baseline"):
        if overridden(node, name) is None:
            continue
        known = run.overridden_reports
        reports = {job.id: known[job.id] for job in jobs if job.id in known}
        if len(reports) < len(jobs):
            raise AuditError(
                f"a conftest overrides {name}, so only the tests of single checkpoints "
                "measure: run them all before "
                f"this one in one process (-n 0), or leave it out (--deselect={node.nodeid})"
            )
        return reports
    return {job.id: run.margin_report(job) for job in jobs}
