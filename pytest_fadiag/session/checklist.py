"""The pitfalls checklist as tests: one for each finding in evaluation code, and one for each pitfall that was not found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.errors import AuditError, AuditFailure
from ..judge.wording import count
from ..show.printable import one_line, printable
from .settings import MARKER, Settings, resolved
from .targets import plain

if TYPE_CHECKING:
    from ..lint import Pitfall, Scan
    from ..show.audit import Checklist
    from .auditor import Auditor


class Readings:
    """What was read of all paths of --fa-checklist, by their names as tests show them."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        from ..lint import scan

        self.scans: dict[str, Scan] = {}
        for path in settings.checklist:
            whole = resolved(config, "checklist", settings, path)
            try:
                self.scans[_shown(config, whole)] = scan(whole)
            except AuditError as error:
                raise AuditError(f"--fa-checklist: {error}") from None

    def findings(self) -> Iterable[tuple[str, Pitfall]]:
        """Every finding, with the file as it is seen from the root folder."""
        for name, scan in self.scans.items():
            for found in scan.findings:
                # A folder's files are named below it; a file names itself.
                yield (name if name.endswith(".py") else f"{name}/{found.file}".removeprefix("./")), found

    def checklist(self) -> Checklist:
        """The findings as plain values, for the summary and the files."""
        from ..show.audit import Checklist

        findings = [{**asdict(found), "file": file} for file, found in self.findings()]
        return Checklist(sum(len(scan.files) for scan in self.scans.values()), tuple(findings))


def collected(session: pytest.Session, auditor: Auditor) -> list[PitfallCollector]:
    """The tests of a run's checklist."""
    readings = auditor.readings
    if readings is None:
        return []
    from ..lint import PITFALLS

    collectors: list[PitfallCollector] = []
    findings = list(readings.findings())
    lines = [(file, found.line, found.number) for file, found in findings]
    for file, found in findings:
        column = f":{found.column}" if lines.count((file, found.line, found.number)) > 1 else ""
        collectors.append(PitfallCollector.made(session, f"{file}:{found.line}{column}", found.number, file, found))
    for name, scan in readings.scans.items():
        for number in sorted(set(PITFALLS) - {found.number for found in scan.findings}):
            collectors.append(PitfallCollector.made(session, name, number, name, None, len(scan.files)))
        for number, problem in enumerate(scan.problems, 1):
            collectors.append(PitfallCollector.made(session, f"{name}:unread-{number}", 0, name, problem))
    asked = auditor.targets.pitfalls
    return [c for c in collectors if asked is None or f"{c.nodeid}::{_name(c.child[0])}" in asked]


def _name(number: int) -> str:
    return f"pitfall-{number}" if number else "unread"


class PitfallCollector(pytest.Collector):
    """One place in evaluation code; its only child is the pitfall that was found there, or was not."""

    child: tuple[int, str, Any, int]

    @classmethod
    def made(
        cls, session: pytest.Session, place: str, number: int, file: str, found: Pitfall | str | None, files: int = 0
    ) -> PitfallCollector:
        """A collector whose id is the place."""
        path = session.config.rootpath
        name = plain(place)
        collector: PitfallCollector = cls.from_parent(session, name=name, nodeid=name, path=path)
        collector.child = (number, file, found, files)
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        number, file, found, files = self.child
        item: PitfallItem = PitfallItem.from_parent(self, name=_name(number))
        item.file, item.found, item.files = file, found, files
        item.add_marker(getattr(pytest.mark, MARKER))
        yield item


class PitfallItem(pytest.Item):
    """Fails with what is wrong, where, and what to write instead."""

    file: str
    found: Pitfall | str | None
    files: int
    fa_headline = ""
    """The line of a failure in the summary, which its report carries from a worker."""

    def runtest(self) -> None:
        """Fail for a finding, skip for one that somebody lets stand, pass where there is none."""
        if self.found is None:
            return
        if isinstance(self.found, str):
            raise AuditError(self.found)
        if self.found.silenced is not None:
            pytest.skip(f"let stand: {one_line(self.found.silenced)}")
        raise AuditFailure(text_of(self.file, self.found), f"{self.found.title}: {one_line(self.found.code)}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The finding alone, without a traceback into this plugin."""
        from .outcome import ReportText

        error = excinfo.value
        if isinstance(error, (AuditFailure, AuditError)):
            headline = error.headline if isinstance(error, AuditFailure) else str(error).partition("\n")[0]
            self.fa_headline = headline
            brief = self.config.getoption("tbstyle", "auto") == "line"
            return ReportText(str(error), headline, self.nodeid, brief=brief)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, 0, self.nodeid.replace("::", " ")


def text_of(file: str, found: Pitfall) -> str:
    """A finding in full."""
    return printable(
        f"{file}:{found.line}: pitfall {found.number}, {found.title}\n"
        f"    {found.code}\n"
        f"  {found.message}\n"
        f"  fix: {found.fix}\n"
        f"  or, if it is right here, say why: # fadiag: ok REASON"
    )


def summary_line(checklist: Checklist) -> str:
    """The checklist in one line."""
    standing = sum(finding["silenced"] is not None for finding in checklist.findings)
    found = len(checklist.findings) - standing
    silenced = f", {standing} let stand" if standing else ""
    return f"FA checklist of {count(checklist.files, 'file')}: {count(found, 'pitfall')}{silenced}"


def _shown(config: pytest.Config, path: Any) -> str:
    relative = os.path.relpath(path, config.rootpath).replace(os.sep, "/")
    return str(path) if relative.startswith("../..") else relative
