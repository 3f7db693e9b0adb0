"""What a run audits: the checkpoints and logs of the options, or those named among the arguments as if they were test files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..judge.diagnostics import DIAGNOSTICS
from ..judge.errors import AuditError
from .seedgroups import SEED_MARGIN, grouped, seed_groups
from .settings import Settings, base_folder
from .targets import SUFFIXES, Target, expand

if TYPE_CHECKING:
    from ..load.controls import Controls

Selection = dict[str, list[str] | None]
"""Checkpoints that the command line names as if they were test files, and which of their diagnostics."""


@dataclass(frozen=True)
class Targets:
    """The checkpoints that written tests run over, those that get generated tests, and which diagnostics of them."""

    all: Sequence[Target] = ()
    generated: Sequence[Target] = ()
    selection: Selection | None = None
    margins: Sequence[str] | None = None
    """The methods whose margin over seeds is tested; ``None`` for every one that has several seeds among the generated."""
    known: Sequence[Target] = ()
    """Everything that the options name, whether or not it gets tests of its own: the seeds of ``margins``."""
    pitfalls: Sequence[str] | None = None
    """The tests of evaluation code that the arguments name; ``None`` for all."""

    def without_controls(self, controls: Controls) -> Targets:
        """These targets without the files that serve as controls: a folder often holds both."""
        used = {str(path) for path in controls.paths} - set(self.selection or ())
        kept = [[target for target in targets if target.path not in used] for targets in (self.all, self.generated, self.known)]
        if self.generated and not kept[1]:
            raise AuditError(
                "everything to audit also serves as a control (--fa-frozen), so that nothing is left:\n  "
                + "\n  ".join(target.path for target in self.generated[:5])
            )
        return replace(self, all=kept[0], generated=kept[1], known=kept[2])

    def shard(self, number: int, count: int) -> Targets:
        """One of several parts of about the same number of bytes, the same on every machine that has the same files.

        A margin over seeds needs all of them, so it is left to the run that merges the parts.
        """
        if self.selection:
            raise AuditError(
                "--fa-shard divides what --fa-checkpoint and --fa-log name; leave the paths among the arguments out"
            )
        if any(target.kind == "recorded" for target in self.generated):
            raise AuditError("--fa-shard and --fa-merge exclude each other: parts are cut from checkpoints, not from audits")
        if not self.generated:
            raise AuditError("--fa-shard: nothing to divide; name checkpoints with --fa-checkpoint or logs with --fa-log")
        if count > len(self.generated):
            raise AuditError(
                f"--fa-shard={number}/{count}: part {count} would be empty, for there are {len(self.generated)} checkpoints to "
                f"audit; divide them into at most {len(self.generated)}"
            )
        sizes = {target.path: 0 if target.missing else os.path.getsize(target.path) for target in self.generated}
        loads = [(0, 0, index) for index in range(count)]
        parts: list[set[str]] = [set() for _ in range(count)]
        for target in sorted(self.generated, key=lambda target: (-sizes[target.path], target.id)):
            size, files, lightest = min(loads)
            parts[lightest].add(target.path)
            loads[lightest] = (size + sizes[target.path], files + 1, lightest)
        mine = parts[number - 1]
        return replace(
            self,
            all=[target for target in self.all if target.path in mine],
            generated=[target for target in self.generated if target.path in mine],
            margins=(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for xdist's workers."""
        return {
            "all": [target.to_dict() for target in self.all],
            "generated": [target.to_dict() for target in self.generated],
            "selection": self.selection,
            "margins": None if self.margins is None else list(self.margins),
            "known": [target.to_dict() for target in self.known],
            "pitfalls": None if self.pitfalls is None else list(self.pitfalls),
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Targets:
        """The targets that the controller found."""
        every, generated, known = ([Target(**target) for target in values[name]] for name in ("all", "generated", "known"))
        return cls(every, generated, values["selection"], values["margins"], known, values["pitfalls"])


def find_targets(config: pytest.Config, settings: Settings, recorded: Sequence[Target] = ()) -> Targets:
    """What to audit, expanded once; what is named among the arguments wins, and is taken out of them."""
    typed = any(name in settings.from_command_line for name in ("checkpoint", "log", "merge"))
    written = _named_by(config, settings, "checkpoint")
    fresh = [*written, *_named_by(config, settings, "log")]
    ids = {target.id for target in fresh}
    generated = grouped([*fresh, *(target for target in recorded if target.id not in ids)])
    if recorded:
        generated = [_as_recorded(target, recorded) for target in generated]
    picked, selection, margins, pitfalls, rest = _among_arguments(config, generated)
    if picked or margins or pitfalls:
        config.args = rest
        known = {target.path: target for target in (*generated, *picked)}
        chosen = grouped(picked) if not set(picked) <= set(generated) else picked
        if pitfalls and not (picked or margins):
            return Targets(written, [], {}, (), list(known.values()), pitfalls)
        return Targets(written or picked, chosen, selection, margins or None, list(known.values()), pitfalls or ())
    if typed or config.args_source is not pytest.Config.ArgsSource.ARGS:
        return Targets(written, generated, known=generated)
    # The ini file's checkpoints belong to a run of everything, as testpaths do: «pytest tests/test_x.py» means that file,
    # «pytest .» and «pytest runs» mean what lies below.
    folders = [os.path.abspath(config.invocation_params.dir / argument) for argument in config.args]
    below = [t for t in generated if any(_below(t.path, f) or _below(config.rootpath, f) for f in folders)]
    return Targets(written, below, known=generated)


def _as_recorded(target: Target, recorded: Sequence[Target]) -> Target:
    """A recorded row in the group that its own run told, among files that this machine need not have."""
    own = next((other for other in recorded if other.path == target.path), None)
    return target if own is None or own.group is None else replace(target, group=own.group or None)


def _named_by(config: pytest.Config, settings: Settings, option: str) -> list[Target]:
    """The files of --fa-checkpoint or --fa-log; who types one of these, or --fa-merge, means no other of the ini file."""
    patterns = settings.values[option]
    typed = option in settings.from_command_line
    other = any(name in settings.from_command_line for name in ("checkpoint", "log", "merge"))
    if not patterns or (other and not typed):
        return []
    seeds = settings.seeds
    every = [*settings.checkpoint, *settings.log]
    if not any("{seed}" in pattern for pattern in patterns) and (
        any("{seed}" in pattern for pattern in every) or (typed and "seeds" not in settings.from_command_line)
    ):
        seeds = None  # they belong to the other option, or the ini file's to the ini file's checkpoints
    return expand(
        patterns,
        base_folder(config, option, settings),
        config.rootpath,
        seeds=seeds,
        missing=settings.missing,
        what=f"--fa-{option}" if typed else f"fa_{option} in the ini file",
        kind=option,
    )


def _among_arguments(
    config: pytest.Config, known: Sequence[Target]
) -> tuple[list[Target], Selection, list[str], list[str], list[str]]:
    picked: dict[str, Target] = {}
    selection: Selection = {}
    margins: list[str] = []
    pitfalls: list[str] = []
    rest: list[str] = []
    groups = {group.name for group in seed_groups(known)}
    for argument in config.args:
        name, _, test = argument.rpartition("::")
        # From another folder pytest prints an id as if it were a path.
        ids = (name, Path(os.path.relpath(config.invocation_params.dir / name, config.rootpath)).as_posix())
        if test == SEED_MARGIN and groups.intersection(ids):
            margins += groups.intersection(ids)
            continue
        if test.startswith("pitfall-"):
            pitfalls += [f"{place}::{test}" for place in ids]
            continue
        target, parts = _named(config, argument, known)
        if target is None:
            rest.append(argument)
            continue
        unknown = [part for part in parts if part not in {d.name for d in DIAGNOSTICS}]
        if unknown:
            raise AuditError(
                f"{argument}: no diagnostic {unknown[0]!r}; there are "
                f"{', '.join(diagnostic.name for diagnostic in DIAGNOSTICS)}"
            )
        picked[target.path] = target
        earlier = selection.get(target.path, [])
        selection[target.path] = [*earlier, *parts] if parts and earlier is not None else None
    return list(picked.values()), selection, margins, pitfalls, rest


def _named(config: pytest.Config, argument: str, known: Sequence[Target]) -> tuple[Target | None, list[str]]:
    """The checkpoint that an argument names, by a path or by an id as pytest prints it, and the diagnostics behind «::»."""
    name, *parts = argument.split("::")
    path = os.path.abspath(config.invocation_params.dir / name)
    # From a sub-folder pytest prints an id as if it were a path: ../dfa_s42.pt for a checkpoint outside the root folder.
    ids = (name, Path(os.path.relpath(path, config.rootpath)).as_posix())
    target = next((t for t in known if t.id in ids or t.path == path), None)
    if target is None and path.endswith(SUFFIXES) and os.path.isfile(path):
        target = expand([path], config.rootpath, config.rootpath, what="checkpoint")[0]
    return target, parts


def _below(path: str | Path, folder: str) -> bool:
    return Path(path).is_relative_to(folder)
