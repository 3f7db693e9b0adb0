"""An audit as pytest sees it: it takes part in collection and reporting, and runs written tests
over checkpoints.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..judge.diagnostics import Diagnostic, select
from ..judge.errors import AuditError
from ..judge.words import printable
from .fixtures import FIXTURES, jobs_of, margin_over_seeds
from .items import AuditCollector, gives_credit, overridden
from .outcome import annotate
from .plan import SEED_MARGIN, diagnostics_for, names_of
from .run import Run
from .settings import MARKER, marked


def audit_of(config: pytest.Config) -> AuditHooks:
    """The audit of this process, begun when it is first asked for."""
    hooks: AuditHooks | None = config.pluginmanager.get_plugin("fadiag-audit")
    if hooks is not None:
        return hooks
    try:
        if not config.pluginmanager.has_plugin("python"):
            raise AuditError("-p no:python: the tests of an audit are functions; leave it out")
        return AuditHooks(config)
    except AuditError as error:
        raise pytest.UsageError(printable(str(error))) from None


class AuditHooks:
    """The audit of one process; the controller's, or the only one, also keeps the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.run = Run(config)
        if self.run.plan.arguments is not None:
            config.args = list(self.run.plan.arguments)
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
        for name in ("fa_test_data", "fa_eval_batches"):
            if overridden(session, name) is not None:
                return
        needs_data = any(job.kind == "checkpoint" and not job.skip for job in self.run.plan.jobs)
        if needs_data and self.run.settings.setup.data is None:
            raise pytest.UsageError("no test data: add --fa-data=SPEC, or fa_data to the ini file")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, Any, Any]:
        """Add the generated tests to what the session collects."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            collected = [] if self.run.settings.only else list(report.result or ())
            report.result = [*collected, *collectors(collector, self.run)]
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Give the report of an audit's test its text and its row."""
        report = yield
        names = getattr(item, "fixturenames", ())
        if item.get_closest_marker(MARKER) or not set(FIXTURES).isdisjoint(names):
            annotate(item, call, report, self.run.first_errors)
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
            if _leaves_to_plugin(metafunc, "fa_checkpoint"):
                params = []
                for job in jobs_of(self.run, node):
                    mark = pytest.mark.skipif(bool(job.skip), reason=job.skip)
                    params.append(pytest.param(job, id=job.id, marks=mark))
                metafunc.parametrize("fa_checkpoint", params, indirect=True)
            if _leaves_to_plugin(metafunc, "fa_diagnostic"):
                names = names_of(_diagnostics_of(self.run, node))
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


def collectors(session: pytest.Session, run: Run) -> Iterator[AuditCollector]:
    """Everything that a run's options and arguments ask for; ids are those of the plan."""
    with_credit = gives_credit(session)
    for planned in run.plan.jobs:
        job = planned.given_credit() if with_credit else planned
        # Where there is no file, another path that exists: --nf asks for its time.
        path = session.config.rootpath if job.skip else Path(job.path)
        node: AuditCollector = AuditCollector.from_parent(
            session, name=job.id, nodeid=job.id, path=path
        )
        node.names = job.diagnostics
        node.body = audit
        node.job = job
        yield node
    for group in run.plan.margins:
        path = Path(run.plan.seeds_of(group)[0].path)
        node = AuditCollector.from_parent(session, name=group, nodeid=group, path=path)
        node.names = (SEED_MARGIN,)
        node.body = over_seeds
        yield node


def _diagnostics_of(run: Run, node: Any) -> tuple[Diagnostic, ...]:
    """What a written test of a diagnostic runs over."""
    keys = marked(node).get("diagnostics")
    if keys is not None:
        return select(keys)
    return diagnostics_for(run.settings, credit=gives_credit(node))


def _leaves_to_plugin(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test leaves the values of a fixture to the plugin: it neither parametrises nor
    replaces it.
    """
    marks = metafunc.definition.iter_markers("parametrize")
    parametrised = [mark.args[:1] or mark.kwargs.get("argnames") for mark in marks]
    if name not in metafunc.fixturenames or name in str(parametrised):
        return False
    definition = overridden(metafunc.definition, name)
    return definition is None or not {"request", name}.isdisjoint(definition.argnames)
