"""What a run audits: what the options name, or what stands among the arguments as if it were a test file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ..judge.diagnostics import Diagnostics
from ..judge.errors import AuditError
from .settings import REGISTRY, Settings
from .targets import SEED_MARGIN, SUFFIXES, Kind, Target, expand, seed_groups, with_groups

NAMING = ("checkpoint", "log", "merge")
"""The options that name what to audit: who types one of them means nothing else of the ini file."""


@dataclass(frozen=True)
class Targets:
    """Everything that a run audits, and which tests of it."""

    written: tuple[Target, ...] = ()
    """Those that written tests run over."""
    generated: tuple[Target, ...] = ()
    """Those that get tests of their own."""
    named: tuple[Target, ...] = ()
    """Everything that the options name, whether or not it gets tests: the seeds of ``margins``."""
    only: Mapping[str, tuple[str, ...] | None] | None = None
    """By path the names of the diagnostics that the arguments ask for (``None``: all), where they name any checkpoint."""
    margins: tuple[str, ...] | None = None
    """The methods whose margin over seeds is tested; ``None`` for every one that has several seeds among the generated."""
    whole: tuple[str, ...] = ()
    """The ids of everything that was divided, where this is a part of it."""
    pitfalls: tuple[str, ...] | None = None
    """The tests of evaluation code that the arguments name; ``None`` for all."""

    def without(self, paths: Sequence[Path]) -> Targets:
        """These targets without the files that serve as controls: a folder often holds both."""
        controls = {str(path) for path in paths} - set(self.only or ())
        written, generated, named = (
            tuple(target for target in targets if target.path not in controls)
            for targets in (self.written, self.generated, self.named)
        )
        if self.generated and not generated:
            raise AuditError(
                "everything to audit also serves as a control (--fa-frozen), so that nothing is left:\n  "
                + "\n  ".join(target.path for target in self.generated[:5])
            )
        return replace(self, written=written, generated=generated, named=named)

    def check_some(self) -> None:
        """Some of the files may be absent where somebody said so; a run that audits none of them would be green."""
        if self.generated and all(target.skip for target in self.generated):
            raise AuditError(
                "none of what is to be audited exists; --fa-missing=skip lets some files be absent, and not all:\n  "
                + "\n  ".join(target.path for target in self.generated[:5])
            )

    def shard(self, number: int, count: int) -> Targets:
        """One of several parts of about the same number of bytes, the same on every machine that has the same files.

        A margin over seeds needs all of them, so it is left to the run that merges the parts.
        """
        if self.only:
            raise AuditError(
                "--fa-shard divides what --fa-checkpoint and --fa-log name; leave the paths among the arguments out"
            )
        if any(target.kind is Kind.RECORDED for target in self.generated):
            raise AuditError("--fa-shard and --fa-merge exclude each other: parts are cut from checkpoints, not from audits")
        if not self.generated:
            raise AuditError("--fa-shard: nothing to divide; name checkpoints with --fa-checkpoint or logs with --fa-log")
        if count > len(self.generated):
            raise AuditError(
                f"--fa-shard={number}/{count}: part {count} would be empty, for there are {len(self.generated)} checkpoints to "
                f"audit; divide them into at most {len(self.generated)}"
            )
        sizes = {target.path: 0 if target.file is None else os.path.getsize(target.path) for target in self.generated}
        loads = [(0, 0, index) for index in range(count)]
        parts: list[set[str]] = [set() for _ in range(count)]
        for target in sorted(self.generated, key=lambda target: (-sizes[target.path], target.id)):
            size, files, lightest = min(loads)
            parts[lightest].add(target.path)
            loads[lightest] = (size + sizes[target.path], files + 1, lightest)
        written, generated = (
            tuple(target for target in targets if target.path in parts[number - 1])
            for targets in (self.written, self.generated)
        )
        whole = tuple(sorted(target.id for target in self.generated))
        return replace(self, written=written, generated=generated, margins=(), whole=whole)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for xdist's workers."""
        lists = {name: [target.to_dict() for target in getattr(self, name)] for name in ("written", "generated", "named")}
        only = None if self.only is None else {path: None if n is None else list(n) for path, n in self.only.items()}
        return {**lists, "only": only, "margins": _list(self.margins), "pitfalls": _list(self.pitfalls)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Targets:
        """The targets that the controller sent."""
        lists = {name: tuple(map(Target.from_dict, values[name])) for name in ("written", "generated", "named")}
        only = values["only"]
        return cls(
            written=lists["written"],
            generated=lists["generated"],
            named=lists["named"],
            only=None if only is None else {path: None if names is None else tuple(names) for path, names in only.items()},
            margins=None if values["margins"] is None else tuple(values["margins"]),
            pitfalls=None if values["pitfalls"] is None else tuple(values["pitfalls"]),
        )


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def find_targets(config: pytest.Config, settings: Settings, recorded: Sequence[Target]) -> Targets:
    """What to audit, expanded once; what is named among the arguments wins, and is taken out of them."""
    written = _named_by(settings, "checkpoint", Kind.CHECKPOINT)
    fresh = [*written, *_named_by(settings, "log", Kind.LOG)]
    ids = {target.id for target in fresh}
    named = tuple(_as_recorded(with_groups([*fresh, *(target for target in recorded if target.id not in ids)]), recorded))
    asked = Arguments.parse(config, named)
    if asked:
        config.args = list(asked.rest)
        return asked.targets(tuple(written), named)
    typed = not settings.typed.isdisjoint(NAMING)
    generated = named
    if not typed and config.args_source is pytest.Config.ArgsSource.ARGS:
        # The ini file's checkpoints belong to a run of everything, as testpaths do: «pytest tests/test_x.py» means that file,
        # «pytest .» and «pytest runs» mean what lies below.
        folders = [os.path.abspath(settings.cwd / argument) for argument in config.args]
        generated = tuple(t for t in named if any(_below(t.path, f) or _below(settings.root, f) for f in folders))
    return Targets(tuple(written), generated, named)


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
    def parse(cls, config: pytest.Config, named: Sequence[Target]) -> Arguments:
        """Each argument by what it names; a diagnostic that does not exist is an error."""
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
                pitfalls += [f"{place}::{test}" for place in ids]
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
        margins, pitfalls = self.margins or None, self.pitfalls or ()
        return Targets(written or picked, chosen, everything, only=self.only, margins=margins, pitfalls=pitfalls)


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
