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
from .names import identify, is_log, plain_config, says

_KIND = re.compile(r"(?:^|[-_])(frozen|shallow)(?=$|[-_])")


def method_and_kind(name: str) -> tuple[str | None, ControlKind]:
    """The method and kind of control that a name gives.

    >>> method_and_kind("frozen_dfa")[0]
    'dfa'
    """
    kind = _KIND.search(name)
    return (
        (_KIND.sub("", name).strip("-_") or None, ControlKind(kind[1]))
        if kind
        else (name, ControlKind.UNMARKED)
    )


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
        return 0 if self.control is None else 2 if self.path is None else 1

    def measured(
        self, score: Score, config: Mapping[str, Any], *, untrained: bool = False
    ) -> Control:
        """The control with its accuracy; its config may tell more than its name."""
        path, doubts = self.path or Path(), []
        method, kind = (
            method_and_kind(str(config["method"]))
            if says(config, "method")
            else (self.method, self.kind)
        )
        kind = self.kind if kind is ControlKind.UNMARKED else kind
        kind = next((each for each in ControlKind if says(config, each.value)), kind)
        if config.get("frozen") is False and kind is not ControlKind.SHALLOW:
            severity = Severity.WARNING if kind is ControlKind.FROZEN else Severity.INVALID
            text = "the control's blocks were trained: its config says frozen: False"
            doubts.append(Doubt(severity, text, mismatched=True))
        if untrained:
            text = "control rejected: its file says `untrained`, as `fadiag control` wrote it"
            doubts.append(Doubt(Severity.INVALID, text))
        return Control(
            score,
            path.name,
            method,
            identify(path, config)[1],
            kind,
            doubts=tuple(doubts),
            config=plain_config(config),
        )


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
            some = [entry for entry in self if entry.rank == rank]
            methods = {entry.method for entry in some if entry.method}
            whose = [m for m in methods if re.fullmatch(f"{re.escape(m)}([-_+].*)?", method)]
            fitting = [entry for entry in some if entry.method == max(whose, key=len, default=None)]
            if not fitting and rank < 2 and len(methods) == 1:
                fitting = some  # controls of one other method are taken, and the report says so
            order = [
                (e.seed != seed, e.seed is not None, e.kind is ControlKind.SHALLOW) for e in fitting
            ]
            best = [entry for entry, key in zip(fitting, order, strict=True) if key == min(order)]
            for other in best[1:]:
                if other.seed == best[0].seed and other != best[0]:
                    names = (
                        e.path or (e.control and e.control.score.value) for e in (best[0], other)
                    )
                    said = f"{' and '.join(map(str, names))} both match; remove one"
                    raise AuditError(f"ambiguous control for {method}: {said}")
            if best:
                return best[0] if best[0].control is None else best[0].control
        if self:
            whose = sorted({str(entry.method) for entry in self})
            raise AuditError(
                f"no control for {method}: those supplied are for {', '.join(whose)}; add "
                f"{method}=ACCURACY, a file frozen_{method}_s<seed>.pt, or one number for all"
            )
        return None


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
            for path in expand(value) if expand else [Path(value)]:
                entries.append(_from_file(path))
        else:
            score = Score(check_accuracy(accuracy, f"control {value!r}", "regression"))
            whose = method.strip() or None
            entries.append(ControlFile(whose, control=Control(score, method=whose)))
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
