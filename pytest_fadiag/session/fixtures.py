"""What the fixtures give to one test, and what a conftest puts in their place."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ..auditor import Overrides
from ..judge.diagnostics import Diagnostic, Finding, get, select
from ..judge.errors import AuditError
from ..judge.report import Report
from ..judge.thresholds import DiagnosticThresholds
from ..show.audit import Keys, Margin, Outcome, decide, judge
from ..show.combine import over_seeds
from ..show.report import DiagnosticReport
from .items import AuditItem, overridden
from .outcome import JOB, MARGIN, ROW, TOLD, row_of, settle, text_of
from .plan import Job, diagnostics_for, make_jobs, required
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
}
"""The fixtures whose override changes what is measured."""
DEPTH = "depth-utility"
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
        self.job, self.path, self.id, self._run = job, Path(job.path), job.id, run

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
        super().check(self.expected or () if expected is None else expected)


class DiagnosticUnderTest:
    """What ``fa_diagnostic`` gives: one finding (``status``, ``value``, ``threshold``,
    ``headline``) of a ``report``.
    """

    def __init__(
        self, node: pytest.Item, report: Report, finding: Finding, outcome: Outcome
    ) -> None:
        self.report, self.finding, self.outcome, self._node = report, finding, outcome, node

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finding, name)

    def check(self) -> None:
        """Raise an ``AssertionError`` if the diagnostic fires, skip if it was not measured.

        A record may say otherwise.
        """
        __tracebackhide__ = True
        row, recorded = self._node.stash[ROW], ""
        if row.expected is not None:
            recorded = "pass" if row.outcomes.keys().isdisjoint(row.expected) else "fire"
        headline = self.finding.headline
        if self.finding.key == "d" and self.report.control is None:
            headline += (
                "; supply one with --fa-frozen=ACCURACY, METHOD=ACCURACY or a control checkpoint"
            )
        again = False
        if self.outcome is Outcome.FAILED:
            told, name = self._node.config.stash.setdefault(TOLD, {}), self._node.nodeid
            again = told.setdefault(row.checkpoint, name) != name
        text = text_of(self.report, row.outcomes, again=again)
        settle(self._node, self.outcome, text, headline, recorded)


def as_job(run: Run, value: object) -> Job:
    """The job of what a fixture or a parametrised test calls its checkpoint: the plugin's own
    object, or a path.
    """
    if isinstance(value, CheckpointUnderTest):
        return value.job
    if isinstance(value, (str, os.PathLike)):
        settings, paths = run.settings, [os.fspath(value)]
        return make_jobs(settings, paths, settings.root, "fa_checkpoint", known=run.plan.named)[0]
    if not isinstance(value, Job):
        raise AuditError(
            f"the fixture fa_checkpoint gave a {type(value).__name__}; expected the path of a "
            "checkpoint"
        )
    return value


def jobs_of(run: Run, node: Any) -> list[Job]:
    """What a written test runs over: its marker's checkpoints, else those that the run names."""
    keywords, settings = marked(node), run.settings
    paths, base = keywords.get("checkpoint"), settings.root
    if paths is None and "seeds" in keywords:
        paths, base = settings.texts.get("checkpoint"), settings.path("checkpoint", "")
    if paths is None:
        jobs = [job for job in run.plan.named if job.kind != "log"]
    else:
        what = f"@pytest.mark.{MARKER}: checkpoint"
        jobs = make_jobs(
            settings,
            map(os.fspath, paths),
            base,
            what,
            seeds=keywords.get("seeds"),
            known=run.plan.named,
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
    job = (
        getattr(request, "param", None)
        or request.node.stash.get(JOB, None)
        or jobs_of(run, request.node)[0]
    )
    request.node.stash[JOB] = job = as_job(run, job)
    request.node.stash.setdefault(ROW, row_of(job))
    return CheckpointUnderTest(run, job)


def network(run: Run, value: object, device: str) -> nn.Module:
    """The network of a test's checkpoint, its tensors loaded."""
    return run.auditor.network(CheckpointUnderTest(run, as_job(run, value)).contents).to(device)


def batches(run: Run, value: object, model: nn.Module, data: Any) -> Iterable[Any]:
    """The batches of a test: its data as the network of its checkpoint takes them."""
    return run.auditor.batches(CheckpointUnderTest(run, as_job(run, value)).contents, model, data)


def control(run: Run, value: object) -> Control | None:
    """The control of --fa-frozen that fits the checkpoint of a test."""
    judged = run.margin(as_job(run, value))
    if judged.control_problem:
        raise AuditError(judged.control_problem)
    return judged.control


def thresholds(run: Run, request: pytest.FixtureRequest) -> DiagnosticThresholds:
    """The thresholds of a test: those of the run, then those of its markers."""
    changes = {
        name: value for name, value in marked(request.node).items() if name not in MARKER_KEYS
    }
    return run.settings.thresholds.replace(**changes)


def asked(run: Run, node: Any, job: Job | None = None) -> tuple[Diagnostic, ...]:
    """The diagnostics of a test: those of its marker, of a generated test its checkpoint's, else
    those of the run.
    """
    keys = marked(node).get("diagnostics")
    if keys is not None:
        return select(keys)
    if isinstance(node, AuditItem) and job is not None:
        return select(job.diagnostics)
    return diagnostics_for(
        run.settings,
        job.kind if job else "checkpoint",
        credit=overridden(node, "fa_credit") is not None,
    )


def report(
    run: Run, request: pytest.FixtureRequest, value: object, limits: DiagnosticThresholds
) -> ReportUnderTest:
    """The report of a test's checkpoint.

    What fixtures override is measured in this process and not stored.
    """
    node, job = request.node, as_job(run, value)
    params = dict(node.callspec.params) if hasattr(node, "callspec") else {}
    diagnostics, single = asked(run, node, job), get(str(params.get("fa_diagnostic", node.name)))
    if single is not None and single not in diagnostics:
        diagnostics = select([*(one.name for one in diagnostics), single.name])
    names = tuple(one.key for one in diagnostics)
    node.stash[JOB], row = job, row_of(job, names if single is None else [single.key])
    node.stash[ROW] = row  # what fails from here on is an error of them
    given = {
        part: request.getfixturevalue(name)
        for part, name in MEASURED_WITH.items()
        if overridden(node, name)
    }
    own = overridden(node, "fa_frozen_baseline")
    control = request.getfixturevalue("fa_frozen_baseline") if own else run.controls or None
    for name in ("fa_diagnostic", "fa_checkpoint"):
        params.pop(name, None)
    key = (job.id, node.parent.nodeid, node.function, repr(params), str(limits), names)
    keywords = marked(node)
    listed = keywords.get("diagnostics") or run.settings.diagnostics or run.settings.protocol
    judged = run.reports.get(key) or run.report(
        job, diagnostics, limits, control, Overrides(**given), literal=bool(listed)
    )
    run.reports[key] = judged
    if isinstance(node, AuditItem) and (given or own):
        run.reports[job.id] = judged
    expected = keywords.get("expect", run.expected(job, judged))
    node.stash[ROW] = msgspec.structs.replace(
        row,
        method=judged.method_name,
        seed=judged.seed,
        report=judged,
        outcomes={} if single is None else row.outcomes,
        expected=expected,
        cached=Path(job.path) in run.auditor.from_cache,
    )
    return ReportUnderTest.of(judged, expected=expected)


def diagnostic(run: Run, request: pytest.FixtureRequest, report: Report) -> DiagnosticUnderTest:
    """One diagnostic of a report.

    (e) speaks in the test of (d) where the supplied control is unusable or in doubt.
    """
    node = request.node
    finding = report.finding(getattr(request, "param", None) or node.name)
    keys, job, row = [finding.key], node.stash[JOB], node.stash[ROW]
    added = DEPTH in report.diagnostics and get(DEPTH) not in asked(run, node, job)
    if finding.key == "d" and added:
        keys, depth = ["d", "e"], report.finding("e")
        if not finding.fired:
            said = f"(e) {depth.name} with (d): {depth.headline}; {finding.headline}"
            finding = msgspec.structs.replace(depth, headline=said)
    outcomes = dict.fromkeys(keys, Outcome.NOT_RUN)
    node.stash[ROW] = msgspec.structs.replace(row, outcomes=outcomes)
    _tell(
        node,
        method=report.method_name,
        seed=report.seed,
        status=finding.outcome,
        value=finding.value,
        threshold=finding.threshold,
    )
    by_marker = marked(node).get("diagnostics")
    needed = job.required if by_marker is None else required(by_marker)
    outcome = judge(finding, keys, row.expected, needed)
    if outcome is Outcome.ERROR:
        raise AuditError(f"{finding.name} cannot be judged: {finding.error or finding.headline}")
    return DiagnosticUnderTest(node, report, finding, outcome)


def _tell(node: pytest.Item, **values: object) -> None:
    """Give the numbers of a test to JUnit's file and to other plugins."""
    known = {name: value for name, value in values.items() if value is not None}
    node.user_properties += [(f"fa_{name}", value) for name, value in known.items()]


def margin_over_seeds(run: Run, request: pytest.FixtureRequest) -> None:
    """The test of a method over its seeds.

    What is not in the cache is measured here, so it waits for no other test.
    """
    __tracebackhide__ = True
    node, group = request.node, request.node.parent.name
    jobs = run.plan.seeds_of(group)
    record = None if run.record is None else run.record.margins.get(group, "PASS")
    node.stash[MARGIN] = row = Margin(group, jobs[0].method, jobs[0].kind == "log", expected=record)
    replaced = [
        name
        for name in (*MEASURED_WITH.values(), "fa_frozen_baseline")
        if overridden(node, name) is not None
    ]
    if replaced:
        reports = {job.id: run.reports[job.id] for job in jobs if job.id in run.reports}
        if len(reports) < len(jobs):
            raise AuditError(
                f"a conftest overrides {replaced[0]}, so only the tests of single checkpoints "
                "measure: run them all before "
                f"this one in one process (-n 0), or leave it out (--deselect={node.nodeid})"
            )
    else:
        reports = {job.id: run.margin(job) for job in jobs}
    report = over_seeds(jobs[0].method, reports)
    if isinstance(report, str):
        return settle(node, decide(None, record), report, report, record or "")
    method, margin, found = report.method, report.margin, report.margin.verdict.value
    record = found if run.settings.update_expect else record
    node.stash[MARGIN] = msgspec.structs.replace(row, method=method, margin=margin, expected=record)
    value, threshold, seeds = margin.margin, margin.minimum, margin.seeds
    _tell(node, method=method, status=found, value=value, threshold=threshold, seeds=seeds)
    headline = "; ".join(filter(None, [report.headline, margin.needed]))
    text = str(report).partition("\n")[2]  # a heading is its title already
    return settle(node, decide(found, record), text, headline, record or "")
