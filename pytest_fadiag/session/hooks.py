"""An audit as pytest sees it: it takes part in collection and reporting, and runs written tests
over checkpoints.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ..judge.errors import AuditError
from ..judge.words import printable
from .fixtures import FIXTURES, asked, jobs_of, margin_over_seeds
from .items import AuditCollector, overridden
from .outcome import annotate
from .plan import SEED_MARGIN, diagnostics_for
from .run import Run
from .settings import MARKER

HOOKS: pytest.StashKey[AuditHooks] = pytest.StashKey()


def audit_of(config: pytest.Config) -> AuditHooks:
    """The audit of this process, begun when it is first asked for."""
    if HOOKS not in config.stash:
        try:
            config.stash[HOOKS] = AuditHooks(config)
        except AuditError as error:
            raise pytest.UsageError(printable(str(error))) from None
    return config.stash[HOOKS]


class AuditHooks:
    """The audit of one process; the controller's, or the only one, also keeps the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.run = Run(config)
        if self.run.plan.rest is not None:
            config.args = list(self.run.plan.rest)
        config.pluginmanager.register(self, "fadiag-audit")
        if not hasattr(config, "workerinput"):
            from .summary import Summary

            self.summary = Summary(config, self.run)
            config.pluginmanager.register(self.summary, "fadiag-summary")
        if config.getoption("dist", "no") != "no":
            from .dist import Workers

            config.pluginmanager.register(Workers(config, self.run), "fadiag-workers")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse an audit without data, now that the fixtures of the root's conftest are known."""
        replaced = (overridden(session, name) for name in ("fa_test_data", "fa_eval_batches"))
        measures = any(job.kind == "checkpoint" and not job.skip for job in self.run.plan.jobs)
        if measures and self.run.settings.setup.data is None and not any(replaced):
            raise pytest.UsageError("no test data: add --fa-data=SPEC, or fa_data to the ini file")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Add the generated tests to what the session collects."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            others = () if self.run.settings.only else report.result or ()
            report.result = [*others, *collectors(collector, self.run)]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Give the report of an audit's test its text and its row."""
        report = yield
        if item.get_closest_marker(MARKER) or not set(FIXTURES).isdisjoint(
            getattr(item, "fixturenames", ())
        ):
            annotate(item, call, report)
        return report

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        """Run a written test over its checkpoints and diagnostics.

        One that audits nothing has no use for the marker.
        """
        node = metafunc.definition
        if set(FIXTURES).isdisjoint(metafunc.fixturenames):
            raise pytest.Collector.CollectError(
                f"{node.nodeid}: @pytest.mark.{MARKER} on a test without a fixture such as "
                "fa_report: add one, or move the marker to the tests that have one"
            )
        try:
            if _takes(metafunc, "fa_checkpoint"):
                params = [
                    pytest.param(
                        job, id=job.id, marks=pytest.mark.skipif(bool(job.skip), reason=job.skip)
                    )
                    for job in jobs_of(self.run, node)
                ]
                metafunc.parametrize("fa_checkpoint", params, indirect=True)
            if _takes(metafunc, "fa_diagnostic"):
                names = [one.name for one in asked(self.run, node)]
                metafunc.parametrize("fa_diagnostic", names, indirect=True)
        except AuditError:  # its fixtures say it when the test runs
            return


@pytest.mark.fa_protocol
def audit(fa_diagnostic: Any) -> None:
    """The body of every test of a checkpoint."""
    __tracebackhide__ = True
    fa_diagnostic.check()


@pytest.mark.fa_protocol
def over_seeds(request: pytest.FixtureRequest) -> None:
    """The body of every test of a margin over seeds."""
    __tracebackhide__ = True
    margin_over_seeds(audit_of(request.config).run, request)


def collectors(session: pytest.Session, run: Run) -> list[AuditCollector]:
    """Everything that a run's options and arguments ask for; ids are those of the plan."""
    made: list[AuditCollector] = []
    credit = overridden(session, "fa_credit") is not None
    usual, names = (
        tuple(one.name for one in diagnostics_for(run.settings, credit=given))
        for given in (False, credit)
    )
    for job in run.plan.jobs:
        if job.kind == "checkpoint" and job.diagnostics == usual:
            job = msgspec.structs.replace(job, diagnostics=names)  # noqa: PLW2901
        # Where there is no file, another path that exists: --nf asks for its time.
        path = session.config.rootpath if job.skip else Path(job.path)
        node: AuditCollector = AuditCollector.from_parent(
            session, name=job.id, nodeid=job.id, path=path
        )
        node.names, node.body, node.job = job.diagnostics, audit, job
        made.append(node)
    for group in run.plan.margins:
        path = Path(run.plan.seeds_of(group)[0].path)
        node = AuditCollector.from_parent(session, name=group, nodeid=group, path=path)
        node.names, node.body = (SEED_MARGIN,), over_seeds
        made.append(node)
    return made


def _takes(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test leaves the values of a fixture to the plugin: it neither parametrises nor
    replaces it.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    taken = [mark.args[:1] or mark.kwargs.get("argnames") for mark in marks]
    if name not in metafunc.fixturenames or name in str(taken):
        return False
    own = overridden(metafunc.definition, name)
    return own is None or not {"request", name}.isdisjoint(own.argnames)
