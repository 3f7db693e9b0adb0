"""What the controller keeps of a run: the rows, the table at the end, and the files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .. import __version__
from ..protocol.diagnostics import DIAGNOSTICS
from ..protocol.report import DiagnosticReport
from .outcome import ROW, revive

if TYPE_CHECKING:
    from ..outputs.rows import AuditRow
    from .auditor import Auditor

WORSE = ("not run", "passed", "skipped", "xfailed", "failed", "error")
"""Outcomes of one diagnostic in several tests or phases: the later in this list stays."""


class Summary:
    """Collects rows from test reports, in this process or from workers; prints and writes once, at the end."""

    def __init__(self, auditor: Auditor) -> None:
        self.auditor = auditor
        self.rows: dict[str, dict[str, Any]] = {}

    def expect(self, nodeids: Iterable[str]) -> None:
        """Note which generated tests are to run, so that one that never does still has its row."""
        names = {diagnostic.name: diagnostic.key for diagnostic in DIAGNOSTICS}
        ids = {target.id: target for target in self.auditor.targets.generated}
        for nodeid in nodeids:
            checkpoint, _, name = nodeid.rpartition("::")
            if checkpoint in ids and name in names:
                self._row(checkpoint, ids[checkpoint].path)["outcomes"].setdefault(names[name], "not run")

    @pytest.hookimpl
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without xdist the session has the items; a controller has none, and its workers tell."""
        self.expect(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """The ids that a worker collected; all workers collect the same."""
        self.expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the row of a report; a worker that died leaves one without, for the test that killed it."""
        revive(report)
        row = getattr(report, ROW, None)
        if row is not None:
            self._take(row)
        elif report.failed and report.when not in ("setup", "call", "teardown"):
            self._crashed(report)

    def _take(self, row: dict[str, Any]) -> None:
        kept = self._row(row["checkpoint"], row["path"])
        if row["report"] is not None:
            kept["report"], kept["expected"] = row["report"], row["expected"]
        if row["reason"] and row["outcome"] == "error":
            kept["reason"] = row["reason"]
        if row["when"] == "setup" and row["outcome"] == "passed":
            return
        if row["diagnostic"] is not None:
            before = kept["outcomes"].get(row["diagnostic"], "not run")
            kept["outcomes"][row["diagnostic"]] = max(before, row["outcome"], key=WORSE.index)
        elif row["outcome"] == "error":
            kept["outcomes"].update({diagnostic.key: "error" for diagnostic in DIAGNOSTICS})

    def _crashed(self, report: pytest.TestReport) -> None:
        checkpoint, _, name = report.nodeid.rpartition("::")
        key = next((diagnostic.key for diagnostic in DIAGNOSTICS if diagnostic.name == name), None)
        if checkpoint in self.rows and key is not None:
            self.rows[checkpoint]["outcomes"][key] = "error"
            self.rows[checkpoint]["reason"] = "its worker died"

    def _row(self, checkpoint: str, path: str) -> dict[str, Any]:
        empty: dict[str, Any] = {"path": path, "outcomes": {}, "report": None, "reason": "", "expected": None}
        return self.rows.setdefault(checkpoint, empty)

    def audit_rows(self) -> list[AuditRow]:
        """The rows sorted by method and seed, then by id."""
        from ..outputs.rows import AuditRow
        from ..sources.identity import identify

        rows = []
        for checkpoint, kept in self.rows.items():
            report = None if kept["report"] is None else DiagnosticReport.from_dict(kept["report"])
            method, seed = identify(Path(kept["path"])) if report is None else (report.method_name, report.seed)
            rows.append(AuditRow(checkpoint, method, seed, report, kept["outcomes"], kept["reason"], kept["expected"]))
        return sorted(rows, key=lambda row: (row.method, -1 if row.seed is None else row.seed, row.checkpoint))

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Print the audit table, or with -q one line."""
        rows = self.audit_rows()
        if not rows or config.option.collectonly:
            return
        if config.get_verbosity() < 0:
            terminalreporter.write_line(one_line(rows))
            return
        from ..outputs.table import render

        writer = terminalreporter._tw
        encoding = getattr(writer._file, "encoding", None) or "ascii"
        terminalreporter.write_sep("=", "FA audit")
        for number, line in enumerate(render(rows, writer.fullwidth, ascii_only="utf" not in encoding.lower())):
            for column, cell in enumerate(line):
                text = cell.text if column + 1 < len(line) else cell.text.rstrip()
                writer.write(text, red=cell.fired, bold=number == 0)
            writer.line()
        if any(row.as_expected for row in rows):
            writer.line("* as expected")
        writer.line(one_line(rows))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files that --fa-report asks for."""
        rows = self.audit_rows()
        if session.config.option.collectonly or not rows:
            return
        for kind, destination in self.auditor.settings.report:
            self._write(kind, destination, rows, session.config)

    def _write(self, kind: str, destination: str, rows: list[AuditRow], config: pytest.Config) -> None:
        from ..outputs.document import document
        from ..outputs.markdown import markdown
        from .cache import write_atomically
        from .settings import base_folder

        path = base_folder(config, "report", self.auditor.settings) / os.path.expandvars(destination)
        text = (
            markdown(rows) if kind == "markdown" else json.dumps(document(rows, __version__), indent=1, allow_nan=False) + "\n"
        )
        try:
            if kind == "markdown" and str(path) == os.environ.get("GITHUB_STEP_SUMMARY"):
                with path.open("a", encoding="utf-8") as file:  # a job's steps share this file
                    file.write(text)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, text)
        except OSError as error:
            raise pytest.UsageError(f"--fa-report={kind}: cannot be written: {error.strerror or error}\n  {path}") from None


def one_line(rows: list[AuditRow]) -> str:
    """The audit in one line that fits a terminal: how many checkpoints stand, and how often each diagnostic fired."""
    judged = [row for row in rows if row.report is not None]
    walked = [row for row in judged if row.fired]
    fired = " ".join(f"{d.key}:{count}" for d in DIAGNOSTICS if (count := sum(d.key in row.fired for row in walked)))
    parts = [f"{len(judged) - len(walked)} trustworthy", f"{len(walked)} walk-back" + (f" ({fired})" if fired else "")]
    if len(rows) > len(judged):
        parts.append(f"{len(rows) - len(judged)} without result")
    return f"FA audit of {len(rows)} checkpoint{'s' * (len(rows) != 1)}: {', '.join(parts)}"
