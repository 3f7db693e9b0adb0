"""Which checkpoints a run audits: those of the options, or those named among the arguments as if they were test files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..protocol.diagnostics import DIAGNOSTICS
from ..protocol.errors import AuditError
from .settings import Settings, base_folder
from .targets import SUFFIXES, Target, expand

if TYPE_CHECKING:
    from ..sources.controls import Controls

Selection = dict[str, list[str] | None]
"""Checkpoints that the command line names as if they were test files, and which of their diagnostics."""


@dataclass(frozen=True)
class Targets:
    """The checkpoints that written tests run over, those that get generated tests, and which diagnostics of them."""

    all: Sequence[Target] = ()
    generated: Sequence[Target] = ()
    selection: Selection | None = None

    def without_controls(self, controls: Controls) -> Targets:
        """These targets without the files that serve as controls: a folder often holds both."""
        used = {str(file.path) for file in controls.files} - set(self.selection or ())
        kept = [[target for target in targets if target.path not in used] for targets in (self.all, self.generated)]
        if self.all and not kept[0]:
            raise AuditError(
                "every checkpoint to audit also serves as a control (--fa-frozen), so that nothing is left:\n  "
                + "\n  ".join(target.path for target in self.all[:5])
            )
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
        every, generated = ([Target(**target) for target in values[name]] for name in ("all", "generated"))
        return cls(every, generated, values["selection"])


def find_targets(config: pytest.Config, settings: Settings) -> Targets:
    """The checkpoints to audit, expanded once; those named among the arguments win, and are taken out of them."""
    typed = "checkpoint" in settings.from_command_line
    optional = _optional(config, settings, typed)
    picked, selection, rest = _among_arguments(config, optional)
    if picked:
        config.args = rest
        return Targets(optional or picked, picked, selection)
    if typed or config.args_source is not pytest.Config.ArgsSource.ARGS:
        return Targets(optional, optional)
    # The ini file's checkpoints belong to a run of everything, as testpaths do: «pytest tests/test_x.py» means that file,
    # «pytest .» and «pytest runs» mean what lies below.
    folders = [os.path.abspath(config.invocation_params.dir / argument) for argument in config.args]
    return Targets(optional, [t for t in optional if any(_below(t.path, f) or _below(config.rootpath, f) for f in folders)])


def _optional(config: pytest.Config, settings: Settings, typed: bool) -> list[Target]:
    seeds, seeds_typed = settings.seeds, "seeds" in settings.from_command_line
    if not settings.checkpoint:
        return []
    if typed and not seeds_typed and not any("{seed}" in pattern for pattern in settings.checkpoint):
        seeds = None  # those of the ini file belong to the ini file's checkpoints
    return expand(
        settings.checkpoint,
        base_folder(config, "checkpoint", settings),
        config.rootpath,
        seeds=seeds,
        missing=settings.missing,
        what="--fa-checkpoint" if typed else "fa_checkpoint in the ini file",
    )


def _among_arguments(config: pytest.Config, known: Sequence[Target]) -> tuple[list[Target], Selection, list[str]]:
    picked: dict[str, Target] = {}
    selection: Selection = {}
    rest: list[str] = []
    for argument in config.args:
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
    return list(picked.values()), selection, rest


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
