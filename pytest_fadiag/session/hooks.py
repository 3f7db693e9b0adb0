"""An audit as pytest sees it: it takes part in collection and reporting, and ends as it should when it is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from typing import Any

import pytest

from ..judge.errors import AuditError
from ..show.printable import printable
from . import checklist, outcome, seeds
from .fixtures import Fixtures
from .items import check_tests, everything, prepare, refuse_broken
from .options import INFORMATION, describe_others
from .run import idle_run, make_run, registry_of
from .settings import MARKER, REGISTRY
from .summary import Summary


class AuditHooks:
    """The audit of one process; the controller's, or the only one, also keeps the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.informs = any(config.getoption(name, None) for name in INFORMATION)
        try:
            config.stash[REGISTRY] = registry = registry_of(config)
            self.run = idle_run(config, registry) if self.informs else make_run(config, registry)
            if self.informs:
                describe_others(config, registry)
        except AuditError as error:
            raise pytest.UsageError(printable(str(error))) from None
        self.fixtures = Fixtures(self.run)

    def begin(self) -> None:
        """Keep the summary, unless a controller does."""
        if not self.informs and not hasattr(self.config, "workerinput"):
            self.config.pluginmanager.register(Summary(self.config, self.run), "fadiag-summary")
            if self.run.in_play:
                self.config.pluginmanager.register(Signals(self.config), "fadiag-signals")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Add the generated tests to what the session collects."""
        report = yield
        if isinstance(collector, pytest.Session) and report.passed and self.run.in_play:
            others = () if self.run.settings.only else report.result or ()
            report.result = [*others, *everything(collector, self.run)]
        return report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Check the markers before anything runs."""
        check_tests(config, items, self.run)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test whose marker is wrong, whatever else it would do."""
        refuse_broken(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Give the report of an audit's test its text and its row."""
        report = yield
        if isinstance(item, seeds.SeedItem):
            seeds.annotate(item, call, report)
        elif isinstance(item, checklist.PitfallItem):
            checklist.annotate(report)
        elif "fa_checkpoint" in getattr(item, "fixturenames", ()):
            outcome.annotate(item, call, report)
        elif report.failed and item.get_closest_marker(MARKER):
            outcome.annotate_error(item, call, report)
        return report

    def parametrize(self, metafunc: pytest.Metafunc) -> None:
        """Run a written test over its checkpoints and diagnostics."""
        prepare(metafunc, self.run)


class Signals:
    """Turns SIGTERM, by which Slurm and CI runners end a job, into an interrupt, and lets the end of a run finish its files."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        in_main = threading.current_thread() is threading.main_thread()
        self.armed = in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if self.armed:
            signal.signal(signal.SIGTERM, self.terminate)
            config.add_cleanup(_disarm)

    def terminate(self, number: int, frame: Any) -> None:
        """Interrupt once; what follows is already the end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt("SIGTERM")

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """End the workers at once: they would first finish what they measure, and a killed job does not wait for them."""
        # Where it came between two lines, pytest would fail to show the traceback, and end as if nothing had happened.
        excinfo.traceback = excinfo.traceback.filter(_has_line)
        dsession = self.config.pluginmanager.getplugin("dsession")
        group = getattr(getattr(dsession, "nodemanager", None), "group", ())
        for gateway in list(group):
            process = getattr(getattr(gateway, "_io", None), "popen", None)
            if process is not None and process.poll() is None:
                process.terminate()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """From here on the files are written, each whole."""
        if self.armed:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _has_line(entry: Any) -> bool:
    """Whether Python knows the line of a traceback's entry: not where a signal comes before the first one of a function."""
    try:
        return isinstance(entry.lineno, int)
    except TypeError:
        return False


def _disarm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
