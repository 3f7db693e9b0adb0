"""What the controller keeps of a run: the rows, the table at the end, and the files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pytest

from ..judge.diagnostics import Diagnostics
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..judge.protocol import PROTOCOLS
from ..judge.report import DiagnosticReport
from ..judge.unite import united
from ..load.identity import identify
from ..show.audit import Audit, AuditRow, Checklist, Origin
from ..show.document import margin_row
from ..show.printable import printable
from ..show.status import Outcome
from ..show.terminal import one_line, write_brief, write_table
from .checklist import summary_lines
from .expect import renew
from .files import destination, origin_of, unset_variable
from .merge import division_of
from .outcome import HEADLINE, MARGIN, ROW, revive
from .run import Run
from .targets import SEED_MARGIN, left_out, passed_over, seed_groups

WORSE = ("not run", "passed", "skipped", "xfailed", "failed", "error")
"""Outcomes of one diagnostic in several tests or phases: the later in this list stays."""


class Summary:
    """Collects rows from test reports, in this process or from workers; prints and writes once, at the end."""

    def __init__(self, config: pytest.Config, run: Run) -> None:
        self.config, self.run = config, run
        self.rows: dict[str, dict[str, Any]] = {}
        self.margins: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        self.interrupted = False

    def expect(self, nodeids: Iterable[str]) -> None:
        """Note which generated tests are to run, so that one that never does still has its row."""
        targets = self.run.targets
        paths = {target.id: target.path for target in targets.generated}
        groups = {group.name: group for group in seed_groups(targets.named)}
        for nodeid in nodeids:
            checkpoint, key = self._parts(nodeid)
            if checkpoint in paths and key is not None:
                self._row(checkpoint, paths[checkpoint])["outcomes"].setdefault(key, "not run")
            elif nodeid.endswith(f"::{SEED_MARGIN}") and checkpoint in groups:
                group = groups[checkpoint]
                self.margins.setdefault(checkpoint, {"name": group.name, "method": group.method, "partial": group.partial})

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
        if str(report.outcome) == "rerun":
            return  # pytest-rerunfailures runs it once more, and only the last time counts
        # Taken off the report: pytest keeps every report to the end, and a row is most of what one weighs.
        row, margin = report.__dict__.pop(ROW, None), report.__dict__.pop(MARGIN, None)
        reasons = [row and row["reason"], margin and margin["reason"], getattr(report, HEADLINE, "")]
        revive(self.config, report, next(filter(None, reasons), ""))
        if row is not None:
            self._take(row)
        elif margin is not None:
            self.margins[margin["name"]] = margin
        elif report.failed and report.when not in ("setup", "call", "teardown"):
            self._crashed(report)

    def _take(self, row: dict[str, Any]) -> None:
        kept = self._row(row["checkpoint"], row["path"])
        if row["report"] is not None:
            asked = tuple(row["report"]["diagnostics"])
            if _weight(row["report"]) >= _weight(kept["reports"].get(asked)):
                # Of two tests with different thresholds the one that found more is shown, whichever came last.
                kept["reports"][asked], kept["expected"] = row["report"], row["expected"]
        if row["reason"] and row["outcome"] == "error":
            kept["reason"] = kept["reason"] or row["reason"]  # the first tells it in full
        if row["diagnostic"] is not None:
            for key in filter(None, (row["diagnostic"], row["instead"])):
                before = kept["outcomes"].get(key, "not run")
                kept["outcomes"][key] = max(before, row["outcome"], key=WORSE.index)
        elif row["outcome"] == "error":
            kept["outcomes"].update({diagnostic.key: "error" for diagnostic in self.run.settings.selected})

    def _crashed(self, report: pytest.TestReport) -> None:
        checkpoint, key = self._parts(report.nodeid)
        if checkpoint in self.margins and key is None:
            self.margins[checkpoint] |= {"outcome": "error", "reason": "its worker died"}
        row = next((row for row in self.rows.values() if row["checkpoint"] == checkpoint), None)
        if row is not None and key is not None:
            row["outcomes"][key] = "error"
            row["reason"] = "its worker died"

    def _parts(self, nodeid: str) -> tuple[str, str | None]:
        """The checkpoint and the diagnostic that an id of a generated test names."""
        checkpoint, _, name = nodeid.rpartition("::")
        return checkpoint, next((d.key for d in self.run.settings.available if d.name == name), None)

    def _row(self, checkpoint: str, path: str) -> dict[str, Any]:
        """The row of a file; ids outside of the root folder are as short as their own test allows, and may be the same."""
        empty: dict[str, Any] = {"checkpoint": checkpoint, "outcomes": {}, "reports": {}, "reason": "", "expected": None}
        return self.rows.setdefault(path, empty)

    @cached_property
    def audit(self) -> Audit:
        """What the run found, put together once, when it is over."""
        margins = [margin_row(values) for _, values in sorted({**self._left_to_the_merge(), **self.margins}.items())]
        settings = self.run.settings
        division = None if settings.shard is None else division_of(settings, self.run.targets.whole)
        return Audit(self._audit_rows(), margins, self._checklist(), settings.shard, division, self._origin(), self.interrupted)

    def _origin(self) -> Origin | None:
        """Where this audit comes from, where somebody keeps it; one file that is only rendered again keeps its own."""
        if not self.run.settings.report:
            return None
        merged = self.run.merged
        return origin_of(self.config, self.run) if merged is None or merged.origin is None else merged.origin

    def _left_to_the_merge(self) -> dict[str, dict[str, Any]]:
        """The margins over seeds of which a part of an audit sees some seeds only, and what is expected of them."""
        if self.run.settings.shard is None:
            return {}
        mine = {target.group for target in self.run.targets.generated}
        recorded = {} if self.run.expectations is None else self.run.expectations.margins
        return {
            group.name: {
                "name": group.name,
                "method": group.method,
                "partial": group.partial,
                "outcome": Outcome.LEFT.value,
                "expected": recorded.get(group.name),
            }
            for group in seed_groups(self.run.targets.named)
            if group.name in mine
        }

    @cached_property
    def groups(self) -> dict[str, str]:
        """The test of the margin over seeds that each path belongs to."""
        return {target.path: group.name for group in seed_groups(self.run.targets.named) for target in group.targets}

    def _checklist(self) -> Checklist | None:
        """What was read of evaluation code in this run, else in the audits that it merges."""
        if self.run.readings is not None:
            return self.run.readings.checklist()
        return None if self.run.merged is None else self.run.merged.checklist

    def _audit_rows(self) -> list[AuditRow]:
        """The rows sorted by method and seed, then by id."""
        if not self.rows:
            return []
        rows = []
        uses = Counter(kept["checkpoint"] for kept in self.rows.values())
        for path, kept in self.rows.items():
            report = _report(kept["reports"].values(), self.run.settings.available)
            method, seed = identify(Path(path)) if report is None else (report.method_name, report.seed)
            name = kept["checkpoint"] if uses[kept["checkpoint"]] == 1 else printable(path)
            before = self._recorded(path, name, method, seed)
            group = self.groups.get(path)
            rows.append(AuditRow(name, method, seed, report, kept["outcomes"], kept["reason"], kept["expected"], before, group))
        return sorted(rows, key=lambda row: row.place)

    def _recorded(self, path: str, name: str, method: str, seed: int | None) -> DiagnosticReport | None:
        """What a row is compared with: the record of --fa-expect, else what a merged audit compared it with."""
        if self.run.expectations is not None:
            return self.run.expectations.recorded(name, method, seed)
        merged = None if self.run.merged is None else self.run.merged.rows.get(path)
        return None if merged is None else merged.recorded

    def _gone(self, rows: Sequence[AuditRow]) -> list[str]:
        """A note on recorded checkpoints that a run of everything does not have: its green is not theirs."""
        run = self.run
        if run.expectations is None or run.targets.only is not None or run.settings.shard is not None:
            return []
        gone = run.expectations.absent(
            [*((row.checkpoint, row.method, row.seed) for row in rows), *((t.id, *t.identity) for t in run.targets.generated)]
        )
        file = run.expectations.path.name
        notes = [f"recorded in {file} and not in this run: {_listed(gone)}"] if gone else []
        return notes + ([f"not in the record {file}: {', '.join(new)}"] if (new := _unrecorded(rows)) else [])

    def _run_notes(self, audit: Audit) -> list[str]:
        """What is said of the run as a whole, below the notes on its rows."""
        merged = () if self.run.merged is None else self.run.merged.notes
        return [
            *self._thresholds(audit),
            *self._gone(audit.rows),
            *merged,
            *self._left_out(),
            *self._of_no_network(audit.rows),
            *self._unused(),
        ]

    def _thresholds(self, audit: Audit) -> list[str]:
        """A note on thresholds that are not the published ones, which a passing run would not show; a form's own are told."""
        defaults = self.run.settings.available.thresholds().by_name()
        judged = [row.report for row in audit.rows if row.report is not None]
        changed: dict[str, None] = {}
        for report in judged:
            own = {**defaults, **({} if report.protocol is None else PROTOCOLS[report.protocol].rules)}
            for name, value in report.thresholds.by_name().items():
                changed |= {_changed(name, value, defaults[name]): None} if name in own and value != own[name] else {}
        minimum = "frozen_acc_margin_pp"
        for margin in (row.margin for row in audit.margins if row.margin is not None and not judged):
            changed |= (
                {_changed(minimum, margin.minimum, defaults[minimum]): None} if margin.minimum != defaults[minimum] else {}
            )
        return [f"judged by thresholds that were changed: {', '.join(changed)}"] if changed else []

    def _left_out(self) -> list[str]:
        """Notes on files beside those that are audited: by its name each may be no network, and be one all the same."""
        settings, targets = self.run.settings, self.run.targets
        if not targets.written or targets.only is not None:
            return []
        known = {target.path for target in targets.named}.union(map(str, self.run.controls.paths))
        base = settings.base("checkpoint")
        found = {
            "left out by their names": left_out(settings.checkpoint, base),
            "left out by their endings or in folders below": passed_over(settings.checkpoint, base),
        }
        names = {why: [os.path.relpath(p, settings.root) for p in paths if p not in known] for why, paths in found.items()}
        return [f"{why}: {_listed(there)}; name a file to audit it" for why, there in names.items() if there]

    def _of_no_network(self, rows: Sequence[AuditRow]) -> list[str]:
        """A note on files that are not audited, since they are controls, and are the control of nothing that is audited."""
        run = self.run
        runs = [(row.method, row.seed) for row in rows]
        if run.settings.shard is not None:  # by their names, those of the other parts
            runs += [target.identity for target in run.targets.named]
        chosen = {str(path) for method, seed in runs if (path := run.controls.path_for(method, seed)) is not None}
        idle = [os.path.relpath(path, run.settings.root) for path in run.targets.controls if path not in chosen]
        why = "not audited, since --fa-frozen names them as controls, and the control of no network here"
        return [f"{why}: {_listed(idle)}"] if idle else []

    def _unused(self) -> list[str]:
        """A note on a credit of the ini file that nothing looks at, since the command line says which diagnostics are run."""
        ignored = self.run.settings.ignores_credit
        return ["fa_credit of the ini file is not looked at: --fa-diagnostics leaves (f) out"] if ignored else []

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
        """Print the audit table, with -q one line a network, with -qq one line."""
        audit = None if _ran_nothing(config, exitstatus) else self.audit
        if audit and (audit.rows or audit.margins) and config.get_verbosity() < 0:
            if config.get_verbosity() < -1:
                terminalreporter.write_line(one_line(audit, terminalreporter._tw.fullwidth))
            else:
                write_brief(terminalreporter._tw, audit, self._run_notes(audit))
        elif audit and (audit.rows or audit.margins):
            terminalreporter.write_sep("=", "FA audit")
            write_table(terminalreporter._tw, audit, self._run_notes(audit))
        if audit and audit.checklist:
            reports = (report for reports in terminalreporter.stats.values() for report in reports)
            ran = {report.nodeid for report in reports if isinstance(report, pytest.TestReport)}
            for line in summary_lines(audit.checklist, self.run.readings, ran):
                terminalreporter.write_line(line)
        for note in self.notes:
            terminalreporter.write_line(note, red=note.startswith("ERROR"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """What is found so far is shown and written, and says that it is not all."""
        self.interrupted = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the files that --fa-report asks for; one that cannot be written costs the exit code, not the summary."""
        if _ran_nothing(session.config, session.exitstatus):
            return
        audit = self.audit
        if self.run.settings.updates_expect:
            self._renew(session, audit)
        for kind, name in self.run.settings.report if audit.rows or audit.margins or audit.checklist else ():
            try:
                self._write(kind, name, audit)
            except Exception as error:  # whatever is wrong with one file, the others and the summary are not lost
                named = error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                text = str(error) if isinstance(error, AuditError) else f"--fa-report={kind}: cannot be written: {named}"
                self._note(f"ERROR: {printable(text)}")
                if session.exitstatus == pytest.ExitCode.OK:
                    session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _renew(self, session: pytest.Session, audit: Audit) -> None:
        """Record what was found for --fa-expect; an audit with something missing is not recorded."""
        try:
            self._note(renew(self.run.settings, audit))
        except (AuditError, OSError) as error:
            self._note(f"ERROR: --fa-update-expect: nothing is written: {printable(str(error))}")
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _write(self, kind: str, name: str, audit: Audit) -> None:
        path = destination(self.run.settings, kind, name)
        if path is None:
            self._note(f"FA audit: no {kind} report is written, since {unset_variable(name)} is not set")
        else:
            for text in self.run.bench.registry.write_report(kind, audit, path):
                self._note(text)
            if path.exists():  # of figures for which there are no numbers, nothing is
                self._note(f"FA audit: {kind} written to {path}")

    def _note(self, text: str) -> None:
        """Say something at the end of the run, also where pytest has no terminal."""
        self.notes.append(text)
        if not self.config.pluginmanager.has_plugin("terminalreporter"):
            print(text, file=sys.stderr)


def _ran_nothing(config: pytest.Config, exitstatus: int) -> bool:
    """Whether tests were only listed, or the command was refused."""
    listed = any(config.getoption(name, False) for name in ("collectonly", "show_fixtures_per_test", "setupplan"))
    return listed or exitstatus == pytest.ExitCode.USAGE_ERROR


def _changed(name: str, value: float | str, default: float | str) -> str:
    shown, usual = (text if isinstance(text, str) else f"{text:g}" for text in (value, default))
    return f"{name} {shown} (default {usual})"


def _listed(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _unrecorded(rows: Iterable[AuditRow]) -> list[str]:
    """The diagnostics whose tests were skipped although they were measured: a record does not know them."""
    measured = (finding for row in rows if row.report is not None for finding in row.report.findings
                if finding.measured and row.outcomes.get(finding.key) is Outcome.SKIPPED)  # fmt: skip
    return list(dict.fromkeys(finding.name for finding in measured))


def _report(reports: Iterable[dict[str, Any]], available: Diagnostics) -> DiagnosticReport | None:
    """What the tests of one file say together: the weightiest report, and what others were asked for beside it."""
    ordered = sorted(reports, key=_weight, reverse=True)
    judged = [DiagnosticReport.from_dict(report, available=available) for report in ordered]
    return reduce(united, judged) if judged else None


def _weight(report: dict[str, Any] | None) -> tuple[int, int, str]:
    """How much a report says, for comparison: what fired, then how much was judged; no report at all is less than nothing."""
    if report is None:
        return -1, 0, ""
    fired = [finding["key"] for finding in report["findings"] if finding["status"] in ("fire", "likely fire")]
    return len(fired), len(report["findings"]), Keys.of(fired)
