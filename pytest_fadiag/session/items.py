"""Tests made from checkpoints: generated items, and written tests that run over all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.diagnostics import Diagnostic
from ..judge.errors import AuditError
from ..judge.thresholds import SHORT_NAMES
from ..show.printable import printable
from . import checklist, seeds
from .outcome import KEY, TARGET, failure_text
from .run import Run
from .selection import asked_keys, asked_of
from .settings import MARKER, marked
from .targets import Target, expand

if TYPE_CHECKING:
    from .fixtures import DiagnosticUnderTest

BROKEN: pytest.StashKey[dict[str, str]] = pytest.StashKey()
"""What is wrong with the markers of written tests, by the ids of these without parameters: each is an error of its test."""
IDLE: pytest.StashKey[dict[str, str]] = pytest.StashKey()
"""Modules and classes whose marker names checkpoints, with the first test below; one is taken out when a test asks for them."""
ASKING = "asks for a fixture such as fa_report or fa_diagnostic: add one, or remove the marker"
NONE_EXISTS = (
    "none of the checkpoints that tests name exists; --fa-missing=skip lets some files be absent, and not all: every test that "
    "audits one would be skipped, and the run green"
)
SEEDS_USED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a marker's path has a {seed} for which --fa-seeds stands."""


@pytest.mark.fa_protocol
def audit(fa_diagnostic: DiagnosticUnderTest) -> None:
    """The body of every generated test."""
    __tracebackhide__ = True
    fa_diagnostic.check()


class CheckpointCollector(pytest.Collector):
    """One checkpoint or log; its children are its diagnostics."""

    target: Target
    diagnostics: Sequence[Diagnostic]

    @classmethod
    def of(cls, session: pytest.Session, target: Target, diagnostics: Sequence[Diagnostic]) -> CheckpointCollector:
        """A collector whose id is the target's own, whatever rootdir and working folder are."""
        path = target.file or session.config.rootpath  # --nf asks for the time of an existing file
        collector: CheckpointCollector = cls.from_parent(session, name=target.id, nodeid=target.id, path=path)
        collector.target, collector.diagnostics = target, diagnostics
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        for diagnostic in self.diagnostics:
            item: DiagnosticItem = DiagnosticItem.from_parent(self, name=diagnostic.name, callobj=audit)
            item.stash[TARGET], item.stash[KEY] = self.target, diagnostic.key
            for mark in _skip(self.target):
                item.add_marker(mark)
            yield item


class DiagnosticItem(pytest.Function):
    """One diagnostic of one checkpoint; fixtures, markers and conftest overrides work as for any test function."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        # The id goes before the name of the diagnostic, so that a failure's headline tells the checkpoint. The line must be a
        # number: pytest adds to it where a marker skips the test.
        return self.path, 0, f"{self.stash[TARGET].id} {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        """What the audit says; pytest would first parse the sources of this plugin for a traceback that nobody sees."""
        return failure_text(self, excinfo.value) or super().repr_failure(excinfo)


def _skip(target: Target) -> list[pytest.MarkDecorator]:
    return [pytest.mark.skip(reason=target.skip)] if target.skip else []


def everything(session: pytest.Session, run: Run) -> list[pytest.Collector]:
    """All that a run's options ask for: checkpoints and logs, methods over their seeds, and evaluation code."""
    available = run.settings.available
    collectors: list[pytest.Collector] = []
    for target in run.targets.generated:
        names = (run.targets.only or {}).get(target.path)
        chosen = available.select(asked_of(run, session, target))
        diagnostics = chosen if names is None else [diagnostic for diagnostic in available if diagnostic.name in names]
        ran = [diagnostic for diagnostic in diagnostics if target.keys is None or diagnostic.key in target.keys]
        collectors.append(CheckpointCollector.of(session, target, ran))
    return [*collectors, *seeds.collectors(session, run), *checklist.collectors(session, run)]


def prepare(metafunc: pytest.Metafunc, run: Run) -> None:
    """Run a written test over its checkpoints; what is wrong with its marker is kept, and is an error of the test."""
    definition = metafunc.definition
    idle = metafunc.config.stash.setdefault(IDLE, {})
    for node in _naming(definition):
        idle.setdefault(node.nodeid, definition.nodeid)
        if "fa_checkpoint" in metafunc.fixturenames:
            idle[node.nodeid] = ""
    try:
        _parametrize(metafunc, run)
    except AuditError as error:
        metafunc.config.stash.setdefault(BROKEN, {})[definition.nodeid] = str(error)


def check_tests(config: pytest.Config, items: Iterable[pytest.Item], run: Run) -> None:
    """Look for what is wrong with markers, also with those that a conftest gave to generated tests, before anything runs."""
    items = list(items)
    seeds_used = bool(run.settings.checkpoint or run.settings.log) or config.stash.get(SEEDS_USED, False)
    if "seeds" in run.settings.typed and not seeds_used and not hasattr(config, "workerinput"):
        raise pytest.UsageError("--fa-seeds is given, but no --fa-checkpoint, --fa-log or marker has a {seed} in it")
    broken = config.stash.setdefault(BROKEN, {})
    if not any("::" in str(argument) for argument in config.args):  # else tests that ask may not have been collected
        for place, first in _idle(config, items).items():
            broken.setdefault(first, f"@pytest.mark.{MARKER} on {place} names checkpoints, and no test below it {ASKING}")
    for item in items:
        try:
            _check_marker(item)
        except AuditError as error:
            broken.setdefault(_bare_id(item), str(error))
    for item in _skipped_all(items, run):
        broken.setdefault(_bare_id(item), NONE_EXISTS)
    if broken and config.getoption("collectonly", False):
        raise pytest.UsageError("\n".join(printable(f"{nodeid}: {text}") for nodeid, text in broken.items()))


def refuse_broken(item: pytest.Item) -> None:
    """Let a test fail whose marker is wrong, before its fixtures are made."""
    text = item.config.stash.get(BROKEN, {}).get(_bare_id(item))
    if text is not None:
        raise AuditError(text)


def _check_marker(item: pytest.Item) -> None:
    """A marker's keywords; on a test function itself it is there to audit something."""
    if item.get_closest_marker(MARKER) is None:
        return
    marked(item)
    for node in item.listchain():
        _check_once(node)
    _check_late(item)
    function = getattr(item, "obj", None)
    own = _marks_on(function)
    ours = str(getattr(function, "__module__", "")).startswith("pytest_fadiag.")
    if own and not ours and not _asks(getattr(item, "fixturenames", ()), {name for mark in own for name in mark.kwargs}):
        raise AuditError(
            f"@pytest.mark.{MARKER} on a test that audits nothing, since it {ASKING.replace('asks', 'does not ask')}"
        )


def _asks(fixtures: Iterable[str], keywords: Set[str]) -> bool:
    """Whether a fixture is asked for that looks at what a marker says; the others of the plugin need a checkpoint each."""
    asked = set(fixtures)
    if {"expect", "diagnostics"} & keywords:
        return "fa_report" in asked
    return "fa_checkpoint" in asked or ("fa_thresholds" in asked and not {"checkpoint", "seeds"} & keywords)


def _check_once(node: Any) -> None:
    """Of two markers on one function, class or module that say the same keyword, one would be dropped."""
    marks = [] if isinstance(node, DiagnosticItem) else _marks_on(getattr(node, "obj", None))
    names = [SHORT_NAMES.get(name, name) for mark in marks for name in mark.kwargs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise AuditError(f"@pytest.mark.{MARKER} says {twice}= twice on {node.name}; say it once, paths as a list")


def _check_late(item: pytest.Item) -> None:
    """What says which checkpoints a test runs over comes too late in pytest.param(marks=…), or by add_marker."""
    own = _marks_on(getattr(item, "obj", None))
    late = [mark for mark in item.own_markers if mark.name == MARKER and mark not in own]
    fixed = {"checkpoint", "seeds"}
    if "fa_diagnostic" in getattr(item, "fixturenames", ()) and not isinstance(item, DiagnosticItem):
        fixed.add("diagnostics")
    ignored = sorted(fixed.intersection(name for mark in late for name in mark.kwargs))
    if ignored:
        raise AuditError(
            f"@pytest.mark.{MARKER}({ignored[0]}=…) in pytest.param(marks=…), or added to a test that is already collected, is "
            "not looked at: put it on the function, or parametrize fa_checkpoint with the paths"
        )


def _marks_on(thing: object) -> list[pytest.Mark]:
    """The markers of this plugin that stand on a function, class or module itself, not on what it inherits from."""
    own: Any = getattr(thing, "__dict__", {}).get("pytestmark", ())
    marks = [
        mark.mark if isinstance(mark, pytest.MarkDecorator) else mark
        for mark in (own if isinstance(own, (list, tuple)) else [own])
    ]
    return [mark for mark in marks if mark.name == MARKER]


def _naming(node: pytest.Item) -> list[Any]:
    """The classes and modules above a test whose marker names checkpoints."""
    return [
        above
        for above in node.listchain()[:-1]
        if any(mark.name == MARKER and mark.kwargs.get("checkpoint") is not None for mark in above.own_markers)
    ]


def _idle(config: pytest.Config, items: Iterable[pytest.Item]) -> dict[str, str]:
    """The modules and classes whose marker names checkpoints for nobody, each with the first test below."""
    idle = config.stash.setdefault(IDLE, {})
    for item in filter(_is_unittest, items):  # pytest does not parametrize it, so that nothing told of its class yet
        for node in _naming(item):
            idle.setdefault(node.nodeid, _bare_id(item))
    return {place: first for place, first in idle.items() if first}


def _is_unittest(item: pytest.Item) -> bool:
    of = getattr(item, "cls", None)
    return "unittest" in sys.modules and isinstance(of, type) and issubclass(of, sys.modules["unittest"].TestCase)


def _skipped_all(items: Iterable[pytest.Item], run: Run) -> list[pytest.Item]:
    """The written tests of checkpoints, where none of these exists; a merge, or a part of an audit, need not have them."""
    if run.settings.missing != "skip" or run.settings.merge or run.settings.shard is not None:
        return []
    generated = [item.stash[TARGET] for item in items if TARGET in item.stash]
    written = {item: target for item in items if isinstance(target := _written_target(item), Target)}
    return list(written) if all(target.skip for target in (*generated, *written.values())) else []


def _written_target(item: pytest.Item) -> Any:
    return getattr(getattr(item, "callspec", None), "params", {}).get("fa_checkpoint")


def _bare_id(item: pytest.Item) -> str:
    """The id of a test without its parameters."""
    name = getattr(item, "originalname", None)
    return item.nodeid if name is None or item.parent is None else f"{item.parent.nodeid}::{name}"


def _parametrize(metafunc: pytest.Metafunc, run: Run) -> None:
    keywords = marked(metafunc.definition)
    if "fa_checkpoint" in metafunc.fixturenames and not _by_itself(metafunc, "fa_checkpoint"):
        targets = _targets_of(metafunc, run, keywords)
        if targets:
            params = [pytest.param(target, id=target.id, marks=_skip(target)) for target in targets]
            metafunc.parametrize("fa_checkpoint", params, indirect=True)
    if "fa_diagnostic" in metafunc.fixturenames and not _by_itself(metafunc, "fa_diagnostic"):
        diagnostics = run.settings.available.select(keywords.get("diagnostics", asked_keys(run, metafunc.definition)))
        metafunc.parametrize("fa_diagnostic", [d.key for d in diagnostics], ids=[d.name for d in diagnostics], indirect=True)


def _targets_of(metafunc: pytest.Metafunc, run: Run, keywords: dict[str, Any]) -> Sequence[Target]:
    """The checkpoints of the marker, else those of the run; without any the fixture says what to do."""
    settings = run.settings
    paths: Any = keywords.get("checkpoint")
    base = settings.root
    if paths is None and "seeds" in keywords and settings.checkpoint:
        paths, base = list(settings.checkpoint), settings.base("checkpoint")
    if paths is None:
        return run.targets.written
    patterns = [os.fspath(path) for path in (paths if isinstance(paths, (list, tuple)) else [paths])]
    seeds = keywords.get("seeds")
    if seeds is None and any("{seed}" in pattern for pattern in patterns):
        seeds, metafunc.config.stash[SEEDS_USED] = settings.seeds, True
    what = f"@pytest.mark.{MARKER} on {metafunc.function.__name__}: checkpoint"
    # A merge is often made where no checkpoint is: what tests of the repo name there is skipped.
    missing = "skip" if settings.merge else settings.missing
    return expand(patterns, base, settings.root, seeds=seeds, missing=missing, what=what)


def _by_itself(metafunc: pytest.Metafunc, name: str) -> bool:
    """Whether a test already says which values a fixture has: by parametrize, or by a fixture that takes none from outside."""
    for marker in metafunc.definition.iter_markers("parametrize"):
        names = marker.args[0] if marker.args else marker.kwargs.get("argnames", ())
        if name in (names.replace(",", " ").split() if isinstance(names, str) else names):
            return True
    definition = metafunc._arg2fixturedefs[name][-1]
    own = not definition.func.__module__.startswith("pytest_fadiag.")
    return own and not {"request", name} & set(definition.argnames)
