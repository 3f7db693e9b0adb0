"""Tests made from checkpoints: generated items, and written tests that run over all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.diagnostics import DIAGNOSTICS, Diagnostic, select
from ..judge.errors import AuditError
from ..show.printable import one_line, printable
from .settings import MARKER, base_folder, marked
from .targets import Target, expand

if TYPE_CHECKING:
    from .auditor import Auditor
    from .outcome import DiagnosticUnderTest

TARGET: pytest.StashKey[Target] = pytest.StashKey()
KEY: pytest.StashKey[str] = pytest.StashKey()
PROBLEMS: pytest.StashKey[list[str]] = pytest.StashKey()


@pytest.mark.fa_protocol
def audit(fa_diagnostic: DiagnosticUnderTest) -> None:
    """The body of every generated test."""
    __tracebackhide__ = True
    fa_diagnostic.check()


class CheckpointCollector(pytest.Collector):
    """One checkpoint or log; its children are its diagnostics."""

    target: Target
    diagnostics: tuple[Diagnostic, ...]

    @classmethod
    def made(cls, session: pytest.Session, target: Target, diagnostics: tuple[Diagnostic, ...]) -> CheckpointCollector:
        """A collector whose id is the target's own, whatever rootdir and working folder are."""
        # --nf asks for the time of an existing file.
        path = session.config.rootpath if target.missing or target.kind == "recorded" else Path(target.path)
        collector: CheckpointCollector = cls.from_parent(session, name=target.id, nodeid=target.id, path=path)
        collector.target, collector.diagnostics = target, diagnostics
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        for diagnostic in self.diagnostics:
            item: DiagnosticItem = DiagnosticItem.from_parent(self, name=diagnostic.name, callobj=audit)
            item.stash[TARGET], item.stash[KEY] = self.target, diagnostic.key
            if self.target.missing:
                item.add_marker(absent(self.target))
            yield item


class DiagnosticItem(pytest.Function):
    """One diagnostic of one checkpoint; fixtures, markers and conftest overrides work as for any test function."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        # The id goes before the name of the diagnostic, so that a failure's headline tells the checkpoint. The line must be a
        # number: pytest adds to it where a marker skips the test.
        return self.path, 0, f"{self.stash[TARGET].id} {self.name}"


def absent(target: Target) -> pytest.MarkDecorator:
    """The skip of a checkpoint that does not exist, where --fa-missing=skip lets it."""
    if target.kind == "recorded":
        return pytest.mark.skip(reason=f"skipped in the recorded audit: {one_line(target.id)}")
    return pytest.mark.skip(reason=f"{target.kind} does not exist: {one_line(target.path)}")


def everything(session: pytest.Session, auditor: Auditor) -> list[pytest.Collector]:
    """All that a run's options ask for: checkpoints and logs, methods over their seeds, and evaluation code."""
    from . import checklist, seedtests

    parts = (generated(session, auditor), seedtests.collected(session, auditor), checklist.collected(session, auditor))
    return [collector for part in parts for collector in part]


def generated(session: pytest.Session, auditor: Auditor) -> list[CheckpointCollector]:
    """The collectors of a run, for the checkpoints and diagnostics that were asked for."""
    chosen = select(auditor.settings.diagnostics)
    collectors = []
    for target in auditor.targets.generated:
        names = (auditor.targets.selection or {}).get(target.path)
        diagnostics = tuple(d for d in (chosen if names is None else DIAGNOSTICS) if names is None or d.name in names)
        if target.kind == "recorded":
            ran = auditor.merged.rows[target.path].outcomes
            diagnostics = tuple(d for d in diagnostics if not ran or d.key in ran)
        collectors.append(CheckpointCollector.made(session, target, diagnostics))
    return collectors


def prepare(metafunc: pytest.Metafunc, auditor: Auditor) -> None:
    """Run a written test over its checkpoints; what is wrong with its marker ends the run with exit code 4."""
    try:
        _parametrize(metafunc, auditor)
    except AuditError as error:
        text = printable(f"{metafunc.definition.nodeid}: {error}")
        if hasattr(metafunc.config, "workerinput"):
            raise pytest.Collector.CollectError(text) from None  # xdist has no way to end a run from a worker
        metafunc.config.stash.setdefault(PROBLEMS, []).append(text)


def check_tests(config: pytest.Config, items: Iterable[pytest.Item], auditor: Auditor) -> None:
    """End the run over what was wrong with markers, also with those that a conftest gave to generated tests."""
    problems = config.stash.get(PROBLEMS, [])
    if auditor.settings.seeds and "seeds" in auditor.settings.from_command_line and not auditor.seeds_used:
        problems.append("--fa-seeds is given, but no --fa-checkpoint, --fa-log or marker has a {seed} in it")
    for item in items:
        try:
            marked(item)
        except AuditError as error:
            problems.append(printable(f"{item.nodeid}: {error}"))
    if problems and not hasattr(config, "workerinput"):
        raise pytest.UsageError("\n".join(dict.fromkeys(problems)))


def _parametrize(metafunc: pytest.Metafunc, auditor: Auditor) -> None:
    keywords = marked(metafunc.definition)
    if "fa_checkpoint" in metafunc.fixturenames and not _by_itself(metafunc, "fa_checkpoint"):
        targets = _targets_of(metafunc, auditor, keywords)
        if targets:
            metafunc.parametrize("fa_checkpoint", [_param(target) for target in targets], indirect=True)
    if "fa_diagnostic" in metafunc.fixturenames and not _by_itself(metafunc, "fa_diagnostic"):
        diagnostics = select(keywords.get("diagnostics", auditor.settings.diagnostics))
        metafunc.parametrize("fa_diagnostic", [d.key for d in diagnostics], ids=[d.name for d in diagnostics], indirect=True)


def _param(target: Target) -> Any:
    return pytest.param(target, id=target.id, marks=[absent(target)] if target.missing else [])


def _targets_of(metafunc: pytest.Metafunc, auditor: Auditor, keywords: dict[str, Any]) -> Sequence[Target]:
    """The checkpoints of the marker, else those of the run; without any the fixture says what to do."""
    config, settings = metafunc.config, auditor.settings
    given: Any = keywords.get("checkpoint")
    base = config.rootpath
    if given is None and "seeds" in keywords and settings.checkpoint:
        given, base = list(settings.checkpoint), base_folder(config, "checkpoint", settings)
    if given is None:
        return auditor.targets.all
    patterns = [os.fspath(path) for path in (given if isinstance(given, (list, tuple)) else [given])]
    seeds = keywords.get("seeds")
    if seeds is None and any("{seed}" in pattern for pattern in patterns):
        seeds, auditor.seeds_used = settings.seeds, True
    what = f"@pytest.mark.{MARKER} on {metafunc.function.__name__}: checkpoint"
    # A merge is often made where no checkpoint is: what tests of the repo name there is skipped.
    missing = "skip" if settings.merge else settings.missing
    return expand(patterns, base, config.rootpath, seeds=seeds, missing=missing, what=what)


def _by_itself(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test already says which values a fixture has: by parametrize, or by a fixture that takes none from outside."""
    for marker in metafunc.definition.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", ())
        if name in (names.replace(",", " ").split() if isinstance(names, str) else names):
            return True
    definition = metafunc._arg2fixturedefs[name][-1]
    own = not definition.func.__module__.startswith("pytest_fadiag.")
    return own and not {"request", name} & set(definition.argnames)
