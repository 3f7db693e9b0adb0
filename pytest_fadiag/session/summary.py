"""What the controller keeps of a run: the rows, the table at the end, and the files."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ..judge.diagnostics import select
from ..judge.errors import AuditError
from ..judge.words import ASCII, fold, printable
from ..progress import Line, Progress, patient
from ..show.audit import Audit, Margin, Outcome, Row, united
from ..show.table import write_table
from .expect import update
from .files import origin_of, write
from .outcome import SENT_MARGIN, SENT_ROW, row_of
from .plan import SEED_MARGIN, Plan
from .run import Run

DIED = "its worker died"


class Summary:
    """Takes rows from test reports, in this process or from workers.

    Prints and writes once, at the end.
    """

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.config = config
        self.run = run
        self.planned_rows = _planned_rows(run.plan)
        self.planned_margins = _planned_margins(run.plan)
        self.selected: list[str] = [*self.planned_rows, *self.planned_margins]
        """The node ids of the tests that are to run; before the collection all that are planned."""
        self.rows: list[Row] = []
        self.margins: dict[str, Margin] = {}
        """Those that ran, by node id."""
        self.notes: list[str] = []
        self.interrupted = False
        self.finished = False
        self.line = Line(sys.stdout)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors=ASCII)
        run.auditor.progress = self.progress
        _interrupt_on_sigterm(config)

    @property
    def is_command(self) -> bool:
        """Whether `fadiag audit` runs: only the audit is printed."""
        return bool(self.config.getoption("fa_command", False))

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist the session has the items; a controller has none, and its workers tell."""
        self.selected = [item.nodeid for item in session.items]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """All workers collect the same."""
        self.selected = list(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the row off a report, which pytest keeps to the end.

        A worker that died leaves a report without one.
        """
        row = report.__dict__.pop(SENT_ROW, None)
        margin = report.__dict__.pop(SENT_MARGIN, None)
        if str(report.outcome) == "rerun":
            return  # of pytest-rerunfailures: the last time counts
        if row is not None:
            self.rows.append(msgspec.convert(row, Row, strict=False))
        elif margin is not None:
            self.margins[report.nodeid] = msgspec.convert(margin, Margin, strict=False)
        elif report.failed and report.when not in ("setup", "call", "teardown"):
            self._take_crash(report.nodeid)
        self._wrap(report)

    def _take_crash(self, nodeid: str) -> None:
        """Note that the worker of a test died."""
        row = self.planned_rows.get(nodeid)
        margin = self.planned_margins.get(nodeid)
        if row is not None:
            outcomes = dict.fromkeys(row.outcomes, Outcome.ERROR)
            self.rows.append(replace(row, outcomes=outcomes, reason=DIED))
        if margin is not None:
            self.margins[nodeid] = replace(margin, outcome=Outcome.ERROR, reason=DIED)

    def _wrap(self, report: pytest.TestReport) -> None:
        """Wrap the text of an audit's failure at the width of the terminal."""
        is_of_audit = getattr(getattr(report.longrepr, "reprcrash", None), "lineno", None) == 0
        if is_of_audit and self.config.pluginmanager.has_plugin("terminalreporter"):
            width = self.config.get_terminal_writer().fullwidth - 1
            for entry in report.longrepr.reprtraceback.reprentries:  # type: ignore[union-attr]
                entry.lines = [f"{line}\n" for line in _wrapped("".join(entry.lines), width)]

    @cached_property
    def audit(self) -> Audit:
        """What the run found, put together once, when it is over.

        A selected test that never ran still has its row.
        """
        rows = sorted(self.rows, key=lambda row: row.report is None)
        judged = {(row.checkpoint, key) for row in rows for key in row.outcomes}
        margins = dict(self.margins)
        for nodeid in self.selected:
            row = self.planned_rows.get(nodeid)
            if row is not None and not all((row.checkpoint, key) in judged for key in row.outcomes):
                rows.append(row)
            if nodeid in self.planned_margins:
                margins.setdefault(nodeid, self.planned_margins[nodeid])
        return Audit(
            united(rows),
            tuple(sorted(margins.values(), key=lambda margin: margin.name)),
            self.run.settings.shard,
            origin_of(self.config, self.run),
            self.interrupted,
        )

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Print the audit table; with -v every report too."""
        self.line.clear()
        writer = self.config.get_terminal_writer()
        least = -2 if self.is_command else 0
        if self._found_something(exitstatus):
            for row in self.audit.measured if self.config.get_verbosity() > least else ():
                terminalreporter.write_sep("-", row.checkpoint)
                width = writer.fullwidth - 1
                writer.line("\n".join(_wrapped(str(row.report and row.report.text(width)), width)))
            if not self.is_command:
                terminalreporter.write_sep("=", "FA audit")
            write_table(writer, self.audit, self._remarks())
        for note in self.notes:
            terminalreporter.write_line(note, red=note.startswith("ERROR"))

    def _found_something(self, exitstatus: int) -> bool:
        """Whether there is an audit: tests were not only listed, nor the command refused."""
        for name in ("collectonly", "setupplan"):
            if self.config.getoption(name, False):
                return False
        if exitstatus == pytest.ExitCode.USAGE_ERROR:
            return False
        return bool(self.audit.rows or self.audit.margins)

    def _remarks(self) -> list[str]:
        """What the table does not show: what a record has and a run of everything has not."""
        run = self.run
        is_partial = run.plan.arguments is not None or run.settings.shard is not None
        if run.expectations is None or is_partial:
            return []
        recorded = run.expectations.keys
        methods = {job.id: job.method for job in run.plan.all_jobs}
        methods |= {row.checkpoint: row.method for row in self.audit.rows}
        names = {*methods, *methods.values()}
        absent = [name for name in recorded if name not in names]
        if not absent:
            return []
        return [f"{len(absent)} of {len(recorded)} recorded entries were not audited"]

    def progress(self, name: str) -> Progress:
        """What tells how far the measurement of a file is: on a line that is cleared, or on lines
        that stay between pytest's own.
        """
        name = printable(name)
        reporter: Any = self.config.pluginmanager.getplugin("terminalreporter")
        capture: Any = self.config.pluginmanager.getplugin("capturemanager")
        step = patient(lambda text: reporter.write_line(f"measuring {name}: {text}"))
        if self.is_command and reporter is not None and reporter.isatty():
            count = len({row.checkpoint for row in self.rows}) + 1
            step = self.line.of(
                f"{name}  {min(count, len(self.run.plan.jobs))}/{len(self.run.plan.jobs)}"
            )

        def tell(phase: str, done: int, total: int) -> None:
            if reporter is not None:
                with capture.global_and_fixture_disabled() if capture else nullcontext():
                    step(phase, done, total)

        return tell

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """What is found so far is shown and written, and says that it is not all."""
        self.interrupted = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: Any) -> None:
        """Write the record and the files; one that cannot be written costs the exit code."""
        self.finished = True
        if signal.getsignal(signal.SIGTERM) is _interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self._found_something(session.exitstatus):
            return
        settings = self.run.settings
        outputs = self.run.registry.outputs()
        base = settings.path("report", "")
        writers: dict[str, Callable[[Audit], str]] = {}
        for text in settings.texts.get("report", ()):
            writers[text] = partial(write, outputs, text, base)
        if settings.update_expect:
            writers["record"] = partial(update, settings.expect)
        for text, writer in writers.items():
            try:
                self.notes.append(f"FA audit: {writer(self.audit)}")
            except (AuditError, OSError) as error:
                reason = printable(str(error))
                self.notes.append(f"ERROR: FA audit: {text} is not written: {reason}")
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.USAGE_ERROR

    @pytest.hookimpl
    def pytest_unconfigure(self) -> None:
        """Show and write a run too that was interrupted while it began: it has no end."""
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if self.interrupted and not self.finished and reporter is not None:
            self.pytest_sessionfinish(SimpleNamespace(exitstatus=pytest.ExitCode.INTERRUPTED))
            self.pytest_terminal_summary(reporter, pytest.ExitCode.INTERRUPTED)


def _planned_rows(plan: Plan) -> dict[str, Row]:
    """The row of every generated test of a checkpoint before it ran, by its node id."""
    rows = {}
    for job in plan.jobs:
        for diagnostic in select([*job.diagnostics, *job.with_credit]):
            row = row_of(job, [diagnostic.key], Outcome.NOT_RUN)
            rows[f"{job.id}::{diagnostic.name}"] = row
    return rows


def _planned_margins(plan: Plan) -> dict[str, Margin]:
    """The same of every margin over seeds."""
    margins = {}
    for group in plan.margins:
        first = plan.seeds_of(group)[0]
        margins[f"{group}::{SEED_MARGIN}"] = Margin(group, first.method, first.kind == "log")
    return margins


def _interrupt_on_sigterm(config: pytest.Config) -> None:
    """End as Ctrl-C does where a job is ended by SIGTERM, as Slurm and CI runners do."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _interrupt)
        config.add_cleanup(partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))  # type: ignore[arg-type]


def _interrupt(number: int, frame: Any) -> None:
    """Interrupt the run once; what follows is already the end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt("SIGTERM")


def _wrapped(text: str, width: int) -> list[str]:
    """A text as wide as the terminal, the continuation of a line below its beginning."""
    lines = []
    for line in text.splitlines():
        if len(line) <= width:
            lines.append(line)
            continue
        content = line.lstrip()
        lines += fold(line.removesuffix(content), [content], width)
    return lines
