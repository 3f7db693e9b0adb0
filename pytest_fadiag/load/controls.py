"""Which control belongs to which audited network; free of torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..judge.control import Control, ControlKind, Doubt, Severity
from ..judge.errors import AuditError
from ..judge.records import Score, check_accuracy
from .logs import read_log
from .names import config_value_set, identify, is_log, plain_config

_KIND = re.compile(r"(?:^|[-_])(frozen|shallow)(?=$|[-_])")


def method_and_kind(name: str) -> tuple[str | None, ControlKind]:
    """The method and kind of control that a name gives.

    >>> method_and_kind("frozen_dfa")[0]
    'dfa'
    """
    kind = _KIND.search(name)
    if kind is None:
        return name, ControlKind.UNMARKED
    method = _KIND.sub("", name).strip("-_")
    return method or None, ControlKind(kind[1])


@dataclass(frozen=True)
class ControlFile:
    """A control as it was supplied: a checkpoint to be measured, or one whose accuracy is known."""

    method: str | None
    """The method that it controls; ``None`` for any."""
    kind: ControlKind = ControlKind.FROZEN
    seed: int | None = None
    path: Path | None = None
    """The checkpoint or log that it is; not audited itself."""
    control: Control | None = None
    """What is known: a number, or what a log says."""

    @property
    def rank(self) -> int:
        """Checkpoints come first, then logs, then numbers."""
        if self.control is None:
            return 0
        if self.path is not None:
            return 1
        return 2

    @property
    def source(self) -> str:
        """The file, or the number."""
        if self.path is None and self.control is not None:
            return str(self.control.score.value)
        return str(self.path)

    def measured(
        self, score: Score, config: Mapping[str, Any], *, untrained: bool = False
    ) -> Control:
        """The control with its accuracy; its config may tell more than its name."""
        path = self.path or Path()
        method, kind = self._method_and_kind(config)
        doubts = []
        if config.get("frozen") is False and kind is not ControlKind.SHALLOW:
            severity = Severity.INVALID
            if kind is ControlKind.FROZEN:
                severity = Severity.WARNING
            text = "the control's blocks were trained: its config says frozen: False"
            doubts.append(Doubt(severity, text, mismatched=True))
        if untrained:
            text = "control rejected: its file says `untrained`, as `fadiag control` wrote it"
            doubts.append(Doubt(Severity.INVALID, text, remedy="train the control"))
        return Control(
            score,
            path.name,
            method,
            identify(path, config)[1],
            kind,
            doubts=tuple(doubts),
            config=plain_config(config),
        )

    def _method_and_kind(self, config: Mapping[str, Any]) -> tuple[str | None, ControlKind]:
        """The method that it controls and its kind, by its config where that tells."""
        method = self.method
        kind = self.kind
        if config_value_set(config, "method"):
            method, kind = method_and_kind(str(config["method"]))
        for marked in ControlKind:
            if config_value_set(config, marked.value):
                return method, marked
        if kind is ControlKind.UNMARKED:
            kind = self.kind
        return method, kind


class Controls(tuple[ControlFile, ...]):
    """Every control that was supplied."""

    @property
    def paths(self) -> list[Path]:
        """The files that are controls, and so not audited themselves."""
        return [entry.path for entry in self if entry.path is not None]

    def choose_for(self, method: str, seed: int | None) -> Control | ControlFile | None:
        """The closest control of a network: of its method or of the one it varies, its seed first.

        That two fit equally, or that some were supplied and none fits, is an error.
        """
        for rank in range(3):
            fitting = self._fitting(method, rank)
            if fitting:
                closest = _closest(fitting, method, seed)
                return closest.control or closest
        if self:
            methods = ", ".join(sorted({str(entry.method) for entry in self}))
            raise AuditError(
                f"no control for {method}: those supplied are for {methods}; add "
                f"{method}=ACCURACY, a file frozen_{method}_s<seed>.pt, or one number for all"
            )
        return None

    def _fitting(self, method: str, rank: int) -> list[ControlFile]:
        """The controls of one rank for a method, for the one that it varies, or for any."""
        entries = [entry for entry in self if entry.rank == rank]
        methods = {entry.method for entry in entries if entry.method}
        varied = [m for m in methods if re.fullmatch(f"{re.escape(m)}([-_+].*)?", method)]
        longest = max(varied, key=len, default=None)
        fitting = [entry for entry in entries if entry.method == longest]
        if not fitting and rank < 2 and len(methods) == 1:
            return entries  # controls of one other method are taken, and the report says so
        return fitting


def _closest(fitting: Sequence[ControlFile], method: str, seed: int | None) -> ControlFile:
    """The control of this seed, else without a seed, else of another; frozen before shallow."""

    def distance(entry: ControlFile) -> tuple[bool, bool, bool]:
        return entry.seed != seed, entry.seed is not None, entry.kind is ControlKind.SHALLOW

    closest = min(fitting, key=distance)
    for entry in fitting:
        same_place = distance(entry) == distance(closest) and entry.seed == closest.seed
        if same_place and entry != closest:
            sources = f"{closest.source} and {entry.source}"
            raise AuditError(f"ambiguous control for {method}: {sources} both match; remove one")
    return closest


def parse_controls(
    values: Sequence[str], expand: Callable[[str], Iterable[Path]] | None = None
) -> Controls:
    """Controls as the command line gives them: 0.349, dfa=0.349, files and globs.

    >>> parse_controls(["0.349", "dfa=0.31"]).choose_for("dfa", 42).score.value
    0.31
    """
    entries: list[ControlFile] = []
    for value in values:
        method, _, number = value.rpartition("=")
        try:
            accuracy = float(number)
        except ValueError:  # a file
            paths = [Path(value)] if expand is None else expand(value)
            entries.extend(map(_from_file, paths))
        else:
            score = Score(check_accuracy(accuracy, f"control {value!r}", "regression"))
            name = method.strip() or None
            entries.append(ControlFile(name, control=Control(score, method=name)))
    if not entries:
        raise AuditError(
            f"no control in {', '.join(values)}: give an accuracy, METHOD=ACCURACY, or a file"
        )
    return Controls(entries)


def _from_file(path: Path) -> ControlFile:
    """A checkpoint by its name, or a log by what it says."""
    if not is_log(path):
        name, seed = identify(path)
        return ControlFile(*method_and_kind(name), seed, path)
    log = read_log(path).base
    if log.score is None:
        raise AuditError(f"control {path}: the log has no accuracy; add final_test_acc or acc_eval")
    entry = ControlFile(*method_and_kind(log.method_name), log.seed, path)
    control = entry.measured(log.score, {**log.config, "method": log.method_name, "seed": log.seed})
    return ControlFile(control.method, control.kind, control.seed, path, control)
