"""What a run audits: which targets, by its options or among its arguments as if they were test files; and which diagnostics."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.diagnostics import ALL, CreditAlignment, DepthUtility, Diagnostic, Diagnostics, unasked
from ..judge.errors import AuditError
from ..judge.keys import Keys
from ..load.controls import Controls, parse_controls
from ..load.recording import records_credit
from .settings import MARKER, REGISTRY, Settings, marked, with_alignment
from .targets import SEED_MARGIN, SUFFIXES, Kind, Target, Targets, expand, seed_groups, with_groups

if TYPE_CHECKING:
    from .run import Run

NAMING = ("checkpoint", "log", "merge")
"""The options that name what to audit: who types one of them means nothing else of the ini file."""
CREDIT_FIXTURE = "fa_credit"
CONTROL_FIXTURE = "fa_frozen_baseline"


def find_targets(
    config: pytest.Config, settings: Settings, recorded: Sequence[Target], pitfalls: Set[str] = frozenset()
) -> Targets:
    """What to audit, expanded once; what is named among the arguments is taken out of them.

    It selects among what the options name, and stands beside what is typed where it is none of that: a shell that expands
    «--fa-checkpoint runs/*.pt» gives the first file to the option.
    """
    written = _named_by(settings, "checkpoint", Kind.CHECKPOINT)
    fresh = [*written, *_named_by(settings, "log", Kind.LOG)]
    ids = {target.id for target in fresh}
    named = tuple(_as_recorded(with_groups([*fresh, *(target for target in recorded if target.id not in ids)]), recorded))
    asked = Arguments.parse(config, named, pitfalls)
    typed = not settings.typed.isdisjoint(NAMING)
    if asked:
        config.args = list(asked.rest)
        paths = {target.path for target in named}
        beside = [target for target in asked.picked.values() if target.path not in paths]
        if not (typed and named and beside):
            return asked.targets(tuple(written), named)
        every = tuple(_as_recorded(with_groups([*named, *beside]), recorded))
        only = {target.path: asked.only[target.path] for target in beside}
        return Targets((*written, *beside), every, every, only=only, pitfalls=asked.pitfalls or None)
    generated = named
    if not typed and config.args_source is pytest.Config.ArgsSource.ARGS:
        # The ini file's checkpoints belong to a run of everything, as testpaths do: «pytest tests/test_x.py» means that file,
        # «pytest .» and «pytest runs» mean what lies below.
        folders = [os.path.abspath(settings.cwd / argument) for argument in config.args]
        generated = tuple(t for t in named if any(_below(t.path, f) or _below(settings.root, f) for f in folders))
    return Targets(tuple(written), generated, named)


def find_controls(settings: Settings) -> Controls:
    """The controls of --fa-frozen, with their globs expanded."""
    base, what = settings.base("frozen"), settings.source("frozen")

    def files(value: str) -> list[Path]:
        return [Path(target.path) for target in expand([value], base, settings.root, what=what)]

    def absolute(value: str) -> str:
        return str(settings.path("frozen", value)) if value.endswith(".json") else value

    try:
        return parse_controls([absolute(value) for value in settings.frozen], files)
    except AuditError as error:
        raise AuditError(str(error) if str(error).startswith(what) else f"{what}: {error}") from None


def _as_recorded(targets: Sequence[Target], recorded: Sequence[Target]) -> list[Target]:
    """Recorded rows in the group that their own run told, among files that this machine need not have."""
    groups = {target.path: target.group for target in recorded if target.group is not None}
    return [replace(t, group=groups[t.path] or None) if t.path in groups else t for t in targets]


def _named_by(settings: Settings, option: str, kind: Kind) -> list[Target]:
    """The files of --fa-checkpoint or --fa-log; who types one of these, or --fa-merge, means no other of the ini file."""
    patterns: tuple[str, ...] = getattr(settings, option)
    typed = option in settings.typed
    if not patterns or (not typed and not settings.typed.isdisjoint(NAMING)):
        return []
    seeds = settings.seeds
    every = [*settings.checkpoint, *settings.log]
    if not any("{seed}" in pattern for pattern in patterns) and (
        any("{seed}" in pattern for pattern in every) or (typed and "seeds" not in settings.typed)
    ):
        seeds = None  # they belong to the other option, or the ini file's to the ini file's checkpoints
    return expand(
        patterns,
        settings.base(option),
        settings.root,
        seeds=seeds,
        missing=settings.missing,
        what=settings.source(option),
        kind=kind,
    )


@dataclass(frozen=True)
class Arguments:
    """What the arguments of pytest name of an audit: by path or by an id as pytest prints it."""

    picked: Mapping[str, Target]
    only: Mapping[str, tuple[str, ...] | None]
    margins: tuple[str, ...]
    pitfalls: tuple[str, ...]
    rest: tuple[str, ...]
    """What is left for pytest."""

    def __bool__(self) -> bool:
        return bool(self.picked or self.margins or self.pitfalls)

    @classmethod
    def parse(cls, config: pytest.Config, named: Sequence[Target], tests: Set[str]) -> Arguments:
        """Each argument by what it names; a diagnostic, or a test of evaluation code, that does not exist is an error."""
        picked: dict[str, Target] = {}
        only: dict[str, tuple[str, ...] | None] = {}
        margins: list[str] = []
        pitfalls: list[str] = []
        rest: list[str] = []
        groups = {group.name for group in seed_groups(named)}
        for argument in config.args:
            name, _, test = argument.rpartition("::")
            ids = _ids_of(config, name)
            if test == SEED_MARGIN and groups.intersection(ids):
                margins += groups.intersection(ids)
                continue
            if test.startswith("pitfall-"):
                pitfalls += _pitfalls(argument, [f"{place}::{test}" for place in ids], tests)
                continue
            target = _target(config, argument.split("::")[0], named)
            if target is None:
                rest.append(argument)
                continue
            names = _diagnostics(argument, config.stash[REGISTRY].diagnostics)
            earlier = only.get(target.path, ())
            only[target.path] = (*earlier, *names) if names and earlier is not None else None
            picked[target.path] = target
        return cls(picked, only, tuple(margins), tuple(pitfalls), tuple(rest))

    def targets(self, written: tuple[Target, ...], named: tuple[Target, ...]) -> Targets:
        """What these arguments select of all that the options name, and beside it."""
        if self.pitfalls and not (self.picked or self.margins):
            return Targets(written, (), named, only={}, margins=(), pitfalls=self.pitfalls)
        picked = tuple(self.picked.values())
        everything = tuple({target.path: target for target in (*named, *picked)}.values())
        chosen = picked if set(picked) <= set(named) else tuple(with_groups(picked))
        margins, pitfalls = self.margins or None, self.pitfalls or None  # who names a checkpoint leaves out no pitfall by it
        return Targets(written or picked, chosen, everything, only=self.only, margins=margins, pitfalls=pitfalls)


def _pitfalls(argument: str, ids: Sequence[str], tests: Set[str]) -> list[str]:
    """The test of evaluation code that an argument names; dropped without a word, it would be green."""
    there = [own for own in dict.fromkeys(ids) if own in tests]
    if not there:
        why = (
            "it was not found in what --fa-checklist reads" if tests else "no evaluation code is read; add --fa-checklist=PATH"
        )
        raise AuditError(f"{argument}: no such test: {why}")
    return there


def _diagnostics(argument: str, diagnostics: Diagnostics) -> list[str]:
    """The diagnostics behind «::»."""
    _, *names = argument.split("::")
    available = [diagnostic.name for diagnostic in diagnostics]
    unknown = [name for name in names if name not in available]
    if unknown:
        raise AuditError(f"{argument}: no diagnostic {unknown[0]!r}; there are {', '.join(available)}")
    return names


def _target(config: pytest.Config, name: str, named: Sequence[Target]) -> Target | None:
    """The checkpoint that an argument names, among those of the options or beside them."""
    path, ids = os.path.abspath(config.invocation_params.dir / name), _ids_of(config, name)
    target = next((target for target in named if target.id in ids or target.path == path), None)
    if target is None and path.endswith(SUFFIXES[Kind.CHECKPOINT]) and os.path.isfile(path):
        target = expand([path], config.rootpath, config.rootpath, what="checkpoint")[0]
    return target


def _ids_of(config: pytest.Config, name: str) -> tuple[str, str]:
    """An id as it stands, and as seen from the root folder: from another one pytest prints ids as if they were paths."""
    return name, Path(os.path.relpath(config.invocation_params.dir / name, config.rootpath)).as_posix()


def _below(path: str | Path, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def asked_keys(run: Run, node: pytest.Item | pytest.Collector) -> Keys:
    """The diagnostics that the run names, and that of a given credit; where it names none, those that go by what there is."""
    settings = run.settings
    if not settings.chooses:
        return unasked_keys(run, node)
    by_fixture = settings.adds_credit and override_of(node, CREDIT_FIXTURE) is not None
    return with_alignment(settings.diagnostics) if by_fixture else settings.diagnostics


def asked_of(run: Run, session: pytest.Session, target: Target) -> Keys:
    """The diagnostics of a generated test, where no argument names one.

    Where the run names none: of a recorded row, those that it had. Of a log, none that needs states, unless it is named, and
    that of the credit where its recorder was given the method's.
    """
    keys, named = asked_keys(run, session), run.settings.named
    if target.kind is Kind.RECORDED and not run.settings.chooses:
        return keys if target.keys is None else target.keys
    if target.kind is not Kind.LOG:
        return keys
    of_numbers = Keys.of(key for key in keys if key in named or key not in (DepthUtility.key, CreditAlignment.key))
    return with_alignment(of_numbers) if not run.settings.chooses and records_credit(Path(target.path)) else of_numbers


def unasked_keys(run: Run, node: pytest.Item | pytest.Collector) -> Keys:
    """The diagnostics that run for a node where nobody says which: options, ini file and conftest tell what there is.

    A run that chooses its diagnostics asks for (e) by name or not at all.
    """
    control = bool(run.settings.frozen) or override_of(node, CONTROL_FIXTURE) is not None or run.settings.chooses
    credit = run.settings.credit is not None or override_of(node, CREDIT_FIXTURE) is not None
    return Keys.of(diagnostic.key for diagnostic in unasked(run.settings.available, control=control, credit=credit))


def is_named(run: Run, node: pytest.Item, diagnostic: Diagnostic, path: str) -> bool:
    """Whether somebody asks for a diagnostic by its key or name: a marker, the options, or an argument; «all» names none."""
    written = [mark.kwargs["diagnostics"] for mark in node.iter_markers(MARKER) if "diagnostics" in mark.kwargs]
    if written:
        return written[0] != ALL and diagnostic.key in marked(node)["diagnostics"]
    if diagnostic.name in ((run.targets.only or {}).get(path) or ()):
        return True
    settings = run.settings
    return settings.chooses and not settings.everything and diagnostic.key in settings.diagnostics


def override_of(node: pytest.Item | pytest.Collector, name: str) -> Any:
    """The definition of a fixture where somebody replaces the plugin's for a node, else nothing."""
    definitions = node.session._fixturemanager.getfixturedefs(name, node)
    last = definitions[-1] if definitions else None
    return None if last is None or last.func.__module__.startswith("pytest_fadiag.") else last
