"""What the controller keeps of a run: the rows, the table at the end, and the files."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import msgspec
import pytest

from ..judge.diagnostics import get
from ..judge.errors import AuditError
from ..judge.words import and_more, fold, printable
from ..progress import patient
from ..show.audit import Audit, Margin, Outcome, Row, united
from ..show.table import write_table
from .expect import update
from .files import origin_of, write
from .outcome import SENT_MARGIN, SENT_ROW, row_of
from .plan import SEED_MARGIN
from .run import Run

DIED = "its worker died"


class Summary:
    """Takes rows from test reports, in this process or from workers.

    Prints and writes once, at the end.
    """

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.config, self.run = config, run
        self.rows: list[Row] = []
        self.expected: list[Row] = []
        self.margins: dict[str, Margin] = {}
        self.notes: list[str] = []
        self.interrupted = False
        run.auditor.progress = partial(progress, config)
        in_main = threading.current_thread() is threading.main_thread()
        if (
            in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):  # by which Slurm and CI runners end a job
            signal.signal(signal.SIGTERM, _interrupt)
            config.add_cleanup(partial(signal.signal, signal.SIGTERM, signal.SIG_DFL))  # type: ignore[arg-type]

    def expect(self, nodeids: Iterable[str]) -> None:
        """Note which generated tests are to run: one that never does still has its row."""
        self.expected = [row for nodeid in nodeids for row in self._row(nodeid, Outcome.NOT_RUN)]

    def _row(self, nodeid: str, outcome: Outcome, reason: str = "") -> Iterable[Row]:
        """The row of a generated test that said nothing itself.

        That of a margin is put in its place.
        """
        name, _, test = nodeid.rpartition("::")
        diagnostic = get(test)
        for job in self.run.plan.jobs:
            if job.id == name and diagnostic is not None:
                yield row_of(job, [diagnostic.key], outcome, reason)
        if test == SEED_MARGIN and name in self.run.plan.margins:
            first = self.run.plan.seeds_of(name)[0]
            self.margins[name] = Margin(
                name, first.method, first.kind == "log", outcome=outcome, reason=reason
            )

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist the session has the items; a controller has none, and its workers tell."""
        self.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """All workers collect the same."""
        if not self.expected:
            self.expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the row off a report, which pytest keeps to the end.

        A worker that died leaves a report without one.
        """
        row, margin = report.__dict__.pop(SENT_ROW, None), report.__dict__.pop(SENT_MARGIN, None)
        if str(report.outcome) == "rerun":
            return  # of pytest-rerunfailures: the last time counts
        if row is not None:
            self.rows.append(msgspec.convert(row, Row, strict=False))
        elif margin is not None:
            self.margins[margin["name"]] = msgspec.convert(margin, Margin, strict=False)
        elif report.failed and report.when not in ("setup", "call", "teardown"):
            self.rows += self._row(report.nodeid, Outcome.ERROR, DIED)
        ours = getattr(getattr(report.longrepr, "reprcrash", None), "lineno", None) == 0
        if ours and self.config.pluginmanager.has_plugin("terminalreporter"):
            width = self.config.get_terminal_writer().fullwidth - 1
            for entry in report.longrepr.reprtraceback.reprentries:  # type: ignore[union-attr]
                entry.lines = [f"{line}\n" for line in _wrapped("".join(entry.lines), width)]

    @cached_property
    def audit(self) -> Audit:
        """What the run found, put together once, when it is over."""
        rows = sorted(self.rows, key=lambda row: row.report is None)
        told = {(row.checkpoint, key) for row in rows for key in row.outcomes}
        rows += [
            row
            for row in self.expected
            if not told.issuperset((row.checkpoint, key) for key in row.outcomes)
        ]
        return Audit(
            united(rows),
            tuple(margin for _, margin in sorted(self.margins.items())),
            self.run.settings.shard,
            origin_of(self.config, self.run),
            self.interrupted,
        )

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Print the audit table; with -v every report too."""
        writer = self.config.get_terminal_writer()
        if self._found_something(exitstatus):
            for row in self.audit.rows if self.config.get_verbosity() > 0 else ():
                if row.report is not None:
                    terminalreporter.write_sep("-", row.checkpoint)
                    width = writer.fullwidth - 1
                    writer.line("\n".join(_wrapped(row.report.text(width), width)))
            terminalreporter.write_sep("=", "FA audit")
            write_table(writer, self.audit, self._remarks())
        for note in self.notes:
            terminalreporter.write_line(note, red=note.startswith("ERROR"))

    def _found_something(self, exitstatus: int) -> bool:
        """Whether there is an audit: tests were not only listed, nor the command refused."""
        listed = (self.config.getoption(name, False) for name in ("collectonly", "setupplan"))
        if any(listed) or exitstatus == pytest.ExitCode.USAGE_ERROR:
            return False
        return bool(self.audit.rows or self.audit.margins)

    def _remarks(self) -> list[str]:
        """What the table does not show: what a record has and a run of everything has not."""
        run = self.run
        if run.record is None or run.plan.rest is not None or run.settings.shard is not None:
            return []
        known = {job.id: job.method for job in run.plan.named}
        known |= {row.checkpoint: row.method for row in self.audit.rows}
        names = {*known, *known.values()}
        gone = [name for name in run.record.keys if name not in names]
        return [f"recorded and not in this run: {and_more(gone)}"] if gone else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """What is found so far is shown and written, and says that it is not all."""
        self.interrupted = True

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the record and the files, each whole.

        One that cannot be written costs the exit code, not the others.
        """
        if signal.getsignal(signal.SIGTERM) is _interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if not self._found_something(session.exitstatus):
            return
        settings, outputs = self.run.settings, self.run.registry.outputs()
        base, texts = settings.path("report", ""), settings.texts.get("report", ())
        written = {text: partial(write, outputs, text, base) for text in texts}
        if settings.update_expect:
            written["record"] = partial(update, settings.expect)
        for text, make in written.items():
            try:
                self.notes.append(f"FA audit: {make(self.audit)}")
            except (AuditError, OSError) as error:
                said = printable(str(error))
                self.notes.append(f"ERROR: FA audit: {text} is not written: {said}")
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.USAGE_ERROR


def progress(config: pytest.Config, name: str) -> Callable[[int, int], None]:
    """Tell how far a measurement is, on its own line."""

    def tell(text: str) -> None:
        reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        if reporter is not None:
            with capture.global_and_fixture_disabled() if capture else nullcontext():
                reporter.write_line(f"measuring {printable(name)}: {text}")

    return patient(tell)


def _interrupt(number: int, frame: Any) -> None:
    """End as Ctrl-C does: SIGTERM is how Slurm and CI runners end a job. What follows is already
    the end.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt("SIGTERM")


def _wrapped(text: str, width: int) -> list[str]:
    """A text as wide as the terminal, the continuation of a line below its beginning."""
    lines = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        lines += fold(line[:indent], [line[indent:]], width) if len(line) > width else [line]
    return lines
