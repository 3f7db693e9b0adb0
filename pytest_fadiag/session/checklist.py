"""The pitfalls checklist as tests: one for each finding in evaluation code, and one for each pitfall that was not found."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError, AuditFailure
from ..judge.late import named
from ..judge.pitfalls import PITFALLS
from ..judge.wording import count
from ..show.audit import Checklist
from ..show.printable import one_line, plain_id, printable
from .outcome import HEADLINE, failure_text
from .settings import MARKER, Settings

if TYPE_CHECKING:
    from ..lint import Pitfall, Scan
    from .run import Run


MOST_SHOWN = 20
"""Findings whose tests did not run that are shown below the summary line."""


class Readings:
    """What was read of all paths of --fa-checklist, by their names as tests show them."""

    def __init__(self, settings: Settings) -> None:
        self.scans: dict[str, Scan] = {}
        scan = named("pytest_fadiag.lint:scan")  # a tool of its own, which most runs do without
        for path in settings.checklist:
            whole = settings.path("checklist", path)
            try:
                self.scans[_shown(settings.root, whole)] = scan(whole)
            except AuditError as error:
                raise AuditError(f"--fa-checklist: {error}") from None

    def findings(self) -> Iterable[tuple[str, Pitfall]]:
        """Every finding, with the file as it is seen from the root folder."""
        for name, reading in self.scans.items():
            for pitfall in reading.findings:
                # A folder's files are named below it; a file names itself.
                yield (name if name.endswith(".py") else f"{name}/{pitfall.file}".removeprefix("./")), pitfall

    def tests(self) -> list[tuple[str, int, str, Pitfall | str | None]]:
        """A test for each finding, each pitfall that was not found, and each file that could not be read: place, number, …"""
        findings = list(self.findings())
        lines = Counter((file, pitfall.line, pitfall.number) for file, pitfall in findings)
        tests: list[tuple[str, int, str, Pitfall | str | None]] = []
        for file, pitfall in findings:
            column = f":{pitfall.column}" if lines[file, pitfall.line, pitfall.number] > 1 else ""
            tests.append((f"{file}:{pitfall.line}{column}", pitfall.number, file, pitfall))
        for name, reading in self.scans.items():
            absent = sorted(set(PITFALLS) - {pitfall.number for pitfall in reading.findings})
            tests += [(name, number, name, None) for number in absent]
            tests += [(f"{name}:unread-{number}", 0, name, problem) for number, problem in enumerate(reading.problems, 1)]
        return tests

    @cached_property
    def ids(self) -> set[str]:
        """The ids of these tests."""
        return {_id(place, number) for place, number, _, _ in self.tests()}

    def checklist(self) -> Checklist:
        """The findings as plain values, for the summary and the files."""
        findings = [{**asdict(pitfall), "file": file} for file, pitfall in self.findings()]
        readings = self.scans.values()
        files, notebooks = sum(len(reading.files) for reading in readings), sum(reading.notebooks for reading in readings)
        return Checklist(files, tuple(findings), notebooks)


def collectors(session: pytest.Session, run: Run) -> list[PitfallCollector]:
    """The tests of a run's checklist, or those of them that its arguments name."""
    tests = () if run.readings is None else run.readings.tests()
    asked = run.targets.pitfalls
    return [PitfallCollector.of(session, *test) for test in tests if asked is None or _id(*test[:2]) in asked]


def _id(place: str, number: int) -> str:
    return f"{plain_id(place)}::{_name(number)}"


def _name(number: int) -> str:
    return f"pitfall-{number}" if number else "unread"


class PitfallCollector(pytest.Collector):
    """One place in evaluation code; its only child is the pitfall that was found there, or was not."""

    number: int
    file: str
    pitfall: Pitfall | str | None

    @classmethod
    def of(cls, session: pytest.Session, place: str, number: int, file: str, pitfall: Pitfall | str | None) -> PitfallCollector:
        """A collector whose id is the place."""
        name = plain_id(place)
        collector: PitfallCollector = cls.from_parent(session, name=name, nodeid=name, path=session.config.rootpath)
        collector.number, collector.file, collector.pitfall = number, file, pitfall
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        item: PitfallItem = PitfallItem.from_parent(self, name=_name(self.number))
        item.file, item.pitfall = self.file, self.pitfall
        item.add_marker(getattr(pytest.mark, MARKER))
        yield item


class PitfallItem(pytest.Item):
    """Fails with what is wrong, where, and what to write instead."""

    file: str
    pitfall: Pitfall | str | None
    """A finding, what kept a file from being read, or nothing."""

    def runtest(self) -> None:
        """Fail for a finding, skip for one that somebody lets stand, pass where there is none."""
        if self.pitfall is None:
            return
        if isinstance(self.pitfall, str):
            raise AuditError(self.pitfall)
        if self.pitfall.silenced is not None:
            pytest.skip(f"let stand: {one_line(self.pitfall.silenced)}")
        raise AuditFailure(text_of(self.file, self.pitfall), f"{self.pitfall.title}: {one_line(self.pitfall.code)}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The finding alone, without a traceback into this plugin."""
        return failure_text(self, excinfo.value) or super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, 0, self.nodeid.replace("::", " ")


def annotate(report: pytest.TestReport) -> None:
    """Let the report of a finding carry its one line from a worker."""
    if report.failed:
        setattr(report, HEADLINE, getattr(getattr(report.longrepr, "reprcrash", None), "message", ""))


def text_of(file: str, pitfall: Pitfall) -> str:
    """A finding in full."""
    return printable(
        f"{file}:{pitfall.line}: pitfall {pitfall.number}, {pitfall.title}\n"
        f"    {pitfall.code}\n"
        f"  {pitfall.message}\n"
        f"  fix: {pitfall.fix}\n"
        f"  or, if it is right here, say why: # fadiag: ok REASON"
    )


def summary_line(checklist: Checklist) -> str:
    """The checklist in one line."""
    let_stand = sum(finding["silenced"] is not None for finding in checklist.findings)
    silenced = f", {let_stand} let stand" if let_stand else ""
    pitfalls = count(len(checklist.findings) - let_stand, "pitfall")
    unread = f"; {count(checklist.notebooks, 'notebook')} not read" if checklist.notebooks else ""
    return f"FA checklist of {count(checklist.files, 'file')}: {pitfalls}{silenced}{unread}"


def summary_lines(checklist: Checklist, readings: Readings | None, ran: Set[str]) -> list[str]:
    """The checklist in one line, and each finding whose test did not run, which no failure shows."""
    if readings is None:  # of merged audits, whose findings are no tests of this run
        waiting = [(f"{finding['file']}:{finding['line']}", finding) for finding in checklist.findings]
        places = [f"{place}: {_in_short(f['number'], f['title'])}" for place, f in waiting if f["silenced"] is None]
    else:
        tests = [test for test in readings.tests() if _id(*test[:2]) not in ran]
        found = [(place, pitfall) for place, _, _, pitfall in tests if pitfall is not None and not isinstance(pitfall, str)]
        places = [f"{place}: {_in_short(p.number, p.title)}" for place, p in found if p.silenced is None]
        places += [pitfall for _, _, _, pitfall in tests if isinstance(pitfall, str)]
    more = [f"  and {len(places) - MOST_SHOWN} more"] if len(places) > MOST_SHOWN else []
    return [summary_line(checklist), *(f"  not run: {one_line(place)}" for place in places[:MOST_SHOWN]), *more]


def _in_short(number: int, title: str) -> str:
    return f"pitfall {number}, {title}"


def _shown(root: Path, path: Path) -> str:
    relative = os.path.relpath(path, root).replace(os.sep, "/")
    return str(path) if relative.startswith("../..") else relative
