"""Tests made from checkpoints: generated items, parametrised tests, and ids pasted from a summary line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..protocol.diagnostics import DIAGNOSTICS, Diagnostic, select
from .settings import MARKER, Settings, base_folder, marker_keywords
from .targets import SUFFIXES, Target, expand

if TYPE_CHECKING:
    from ..sources.controls import Controls
    from .auditor import Auditor
    from .outcome import DiagnosticUnderTest

TARGET: pytest.StashKey[Target] = pytest.StashKey()
KEY: pytest.StashKey[str] = pytest.StashKey()
Selection = dict[str, list[str] | None]
"""Checkpoints that the command line names as if they were test files, and which of their diagnostics."""


@pytest.mark.fa_protocol
def audit(fa_diagnostic: DiagnosticUnderTest) -> None:
    """The body of every generated test."""
    __tracebackhide__ = True
    fa_diagnostic.check()


class CheckpointCollector(pytest.Collector):
    """One checkpoint; its children are its diagnostics."""

    target: Target
    diagnostics: tuple[Diagnostic, ...]

    @classmethod
    def made(cls, session: pytest.Session, target: Target, diagnostics: tuple[Diagnostic, ...]) -> CheckpointCollector:
        """A collector whose id is the target's own, whatever rootdir and working folder are."""
        collector: CheckpointCollector = cls.from_parent(session, name=target.id, nodeid=target.id, path=Path(target.path))
        collector.target, collector.diagnostics = target, diagnostics
        return collector

    def collect(self) -> Iterable[pytest.Item]:
        for diagnostic in self.diagnostics:
            item: DiagnosticItem = DiagnosticItem.from_parent(self, name=diagnostic.name, callobj=audit)
            item.stash[TARGET], item.stash[KEY] = self.target, diagnostic.key
            if self.target.missing:
                item.add_marker(pytest.mark.skip(reason=f"checkpoint does not exist: {self.target.path}"))
            yield item


class DiagnosticItem(pytest.Function):
    """One diagnostic of one checkpoint; fixtures, markers and conftest overrides work as for any test function."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        # The name of the file goes before that of the diagnostic, so that a failure's headline tells the checkpoint.
        return self.path, None, f"{Path(self.stash[TARGET].path).name} {self.name}"


def generated(session: pytest.Session, auditor: Auditor) -> list[CheckpointCollector]:
    """The collectors of a run, for the checkpoints and diagnostics that were asked for."""
    chosen = select(auditor.settings.diagnostics)
    collectors = []
    for target in auditor.targets.generated:
        names = auditor.targets.selection.get(target.path)
        diagnostics = tuple(d for d in (chosen if names is None else DIAGNOSTICS) if names is None or d.name in names)
        collectors.append(CheckpointCollector.made(session, target, diagnostics))
    return collectors


@dataclass(frozen=True)
class Targets:
    """The checkpoints that written tests run over, those that get generated tests, and which diagnostics of them."""

    all: list[Target]
    generated: list[Target]
    selection: Selection

    def without_controls(self, controls: Controls) -> Targets:
        """These targets without the files that serve as controls: a folder often holds both."""
        used = {str(file.path) for file in controls.files}
        named = set(self.selection)
        kept = [[t for t in targets if t.path not in used or t.path in named] for targets in (self.all, self.generated)]
        return Targets(kept[0], kept[1], self.selection)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for xdist's workers."""
        return {
            "all": [target.to_dict() for target in self.all],
            "generated": [target.to_dict() for target in self.generated],
            "selection": self.selection,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Targets:
        """The targets that the controller found."""
        return cls(
            [Target(**target) for target in values["all"]],
            [Target(**target) for target in values["generated"]],
            values["selection"],
        )


def find_targets(config: pytest.Config, settings: Settings) -> Targets:
    """The checkpoints to audit, expanded once; those named among the arguments win, and are taken out of them."""
    optional: list[Target] = []
    named_in_ini = "checkpoint" not in settings.from_command_line
    if settings.checkpoint:
        optional = expand(
            settings.checkpoint,
            base_folder(config, "checkpoint", settings),
            config.rootpath,
            seeds=settings.seeds,
            missing=settings.missing,
            what="fa_checkpoint in the ini file" if named_in_ini else "--fa-checkpoint",
        )
    elif settings.seeds and "seeds" in settings.from_command_line:
        raise pytest.UsageError("--fa-seeds is given, but no --fa-checkpoint with {seed} in it")
    picked, selection, rest = _among_arguments(config, optional)
    if picked:
        config.args = rest
        return Targets(optional or picked, picked, selection)
    named_tests = config.args_source is pytest.Config.ArgsSource.ARGS
    # The ini file's checkpoints belong to a run of everything, as testpaths do; «pytest tests/test_x.py» means that file.
    return Targets(optional, [] if named_in_ini and named_tests else optional, {})


def _among_arguments(config: pytest.Config, known: list[Target]) -> tuple[list[Target], Selection, list[str]]:
    by_id = {target.id: target for target in known}
    picked: dict[str, Target] = {}
    selection: Selection = {}
    rest: list[str] = []
    for argument in config.args:
        name, *parts = argument.split("::")
        path = os.path.abspath(config.invocation_params.dir / name)
        target = by_id.get(name) or next((t for t in known if t.path == path), None)
        if target is None and path.endswith(SUFFIXES) and os.path.isfile(path):
            target = expand([path], config.rootpath, config.rootpath, what="checkpoint")[0]
        if target is None:
            rest.append(argument)
            continue
        unknown = [part for part in parts if part not in {d.name for d in DIAGNOSTICS}]
        if unknown:
            raise pytest.UsageError(
                f"{name}: no diagnostic {unknown[0]!r}; there are {', '.join(diagnostic.name for diagnostic in DIAGNOSTICS)}"
            )
        picked[target.path] = target
        earlier = selection.get(target.path, [])
        selection[target.path] = [*earlier, *parts] if parts and earlier is not None else None
    return list(picked.values()), selection, rest


def parametrize(metafunc: pytest.Metafunc, auditor: Auditor) -> None:
    """Run a test that asks for the checkpoint, the report or a diagnostic once for each of them."""
    keywords: dict[str, Any] = {}
    for marker in reversed(list(metafunc.definition.iter_markers(MARKER))):
        keywords.update(marker_keywords(marker))
    if "fa_checkpoint" in metafunc.fixturenames:
        targets = _targets_of(metafunc, auditor, keywords)
        if targets:
            marks = [_param(target) for target in targets]
            metafunc.parametrize("fa_checkpoint", marks, indirect=True)
    if "fa_diagnostic" in metafunc.fixturenames:
        diagnostics = select(keywords.get("diagnostics", auditor.settings.diagnostics))
        metafunc.parametrize("fa_diagnostic", [d.key for d in diagnostics], ids=[d.name for d in diagnostics], indirect=True)


def _param(target: Target) -> Any:
    missing = pytest.mark.skip(reason=f"checkpoint does not exist: {target.path}")
    return pytest.param(target, id=target.id, marks=[missing] if target.missing else [])


def _targets_of(metafunc: pytest.Metafunc, auditor: Auditor, keywords: dict[str, Any]) -> list[Target]:
    config, settings = metafunc.config, auditor.settings
    given = keywords.get("checkpoint")
    if given is None and "seeds" in keywords and settings.checkpoint:
        given, base = list(settings.checkpoint), base_folder(config, "checkpoint", settings)
    else:
        base = config.rootpath
    if given is None:
        targets = list(auditor.targets.all)
    else:
        patterns = [given] if isinstance(given, (str, os.PathLike)) else list(given)
        seeds = keywords.get("seeds", settings.seeds if any("{seed}" in str(p) for p in patterns) else None)
        what = f"@pytest.mark.{MARKER} on {metafunc.function.__name__}: checkpoint"
        targets = expand(map(str, patterns), base, config.rootpath, seeds=seeds, missing=settings.missing, what=what)
    if not targets and not _own_checkpoint(metafunc):
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid} needs a checkpoint, and none is given: add --fa-checkpoint=PATH, fa_checkpoint in "
            f"the ini file, @pytest.mark.{MARKER}(checkpoint=PATH), or deselect it"
        )
    return targets


def _own_checkpoint(metafunc: pytest.Metafunc) -> bool:
    definitions = metafunc._arg2fixturedefs.get("fa_checkpoint", ())
    return bool(definitions) and not definitions[-1].func.__module__.startswith("pytest_fadiag.")
