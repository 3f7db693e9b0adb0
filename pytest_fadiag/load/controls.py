"""Which frozen-random control belongs to which audited network; free of torch, so that a cached audit needs none."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ..judge.codec import parse_json
from ..judge.control import Control, ControlKind
from ..judge.doubts import Doubt, DoubtKind
from ..judge.errors import AuditError
from ..judge.limits import LARGEST_JSON, read_bytes
from ..judge.records import Accuracy, check_accuracy
from ..judge.report import DiagnosticReport
from .identity import identify, says_yes
from .logs import TrainingLog, read_logs

_KIND = re.compile(r"(?:^|[-_])(frozen|shallow)(?=$|[-_])")
C = TypeVar("C", "ControlFile", "Reported")


@dataclass(frozen=True)
class ControlFile:
    """A control checkpoint, by what its name says of it."""

    path: Path
    method: str | None
    seed: int | None
    kind: ControlKind = ControlKind.FROZEN

    @property
    def shallow(self) -> bool:
        """Whether it has no blocks at all: where there is one with random blocks too, that is taken."""
        return self.kind is ControlKind.SHALLOW

    @property
    def name(self) -> str:
        """What an error calls it."""
        return str(self.path)

    @classmethod
    def named(cls, path: Path) -> ControlFile:
        """What ``frozen_<method>_s<seed>``, ``<method>-frozen_s<seed>`` or ``frozen_s<seed>`` say."""
        stem, seed = identify(path)
        method, kind = method_and_kind(stem)
        return cls(path, method, seed, kind or ControlKind.UNMARKED)


def method_and_kind(name: str) -> tuple[str | None, ControlKind | None]:
    """The method and the kind of control that a name like ``frozen_dfa`` or ``dfa-shallow`` gives, where it gives them."""
    kind = _KIND.search(name)
    return (_KIND.sub("", name).strip("-_") or None, ControlKind(kind[1])) if kind else (name, None)


def control_of(file: ControlFile, config: Mapping[str, Any], accuracy: Accuracy) -> Control:
    """A measured or logged control, labelled by its own ``config`` where that tells more than the file's name."""
    kind = next((kind for kind in (ControlKind.SHALLOW, ControlKind.FROZEN) if says_yes(config, kind.value)), None)
    if kind is None and config.get("frozen") is False and file.kind is ControlKind.UNMARKED:
        raise AuditError(
            f"control {file.path.name}: its config says frozen: False, so it is a trained network and no control; "
            "train one with its blocks left at their random initialisation"
        )
    method, named = file.method, file.kind
    says_trained = kind is None and config.get("frozen") is False
    untrained = [Doubt(DoubtKind.UNTRAINED, "as fadiag control wrote it")] if says_yes(config, "untrained") else []
    doubts = (*untrained, *([Doubt(DoubtKind.TRAINED, "its config says frozen: False")] if says_trained else []))
    if says_yes(config, "method"):
        method, own = method_and_kind(str(config["method"]))
        named = own or named
    _, seed = identify(file.path, config)
    return Control(accuracy, file.path.name, method, seed, kind or named, doubts=doubts, config=config)


@dataclass(frozen=True)
class Reported:
    """A control from an earlier report or a training log, and for which method and seed it stands."""

    control: Control
    method: str | None
    seed: int | None
    log: Path | None = None
    """The training log that it was read from, if it was one."""

    @property
    def shallow(self) -> bool:
        """Whether it has no blocks at all: where there is one with random blocks too, that is taken."""
        return self.control.kind is ControlKind.SHALLOW

    @property
    def name(self) -> str:
        """What an error calls it."""
        return f"{self.control.source} ({self.control.accuracy.value:g})"

    def check_not_of(self, method: str, seed: int | None) -> None:
        """Refuse the log of the audited network itself: unlike a checkpoint it has no weights that would tell."""
        if self.log is not None and self.control.kind is ControlKind.UNMARKED and (self.method, self.seed) == (method, seed):
            of = method if seed is None else f"{method}, seed {seed}"
            raise AuditError(
                f"control {self.log.name}: by its method and seed it is the log of the audited network ({of}), and nothing in "
                "its name or config says that its blocks are frozen; if they are, put frozen: true into its config\n"
                f"  {self.log}"
            )


@dataclass(frozen=True)
class Controls:
    """Every control that was supplied: one number for all, numbers by method, of earlier reports and logs, checkpoints."""

    number: float | None = None
    by_method: Mapping[str, float] = field(default_factory=dict)
    reported: Sequence[Reported] = ()
    files: Sequence[ControlFile] = ()

    def __bool__(self) -> bool:
        return self.number is not None or bool(self.by_method or self.reported or self.files)

    @property
    def paths(self) -> list[Path]:
        """The checkpoints and training logs that are controls, and so not to be audited themselves."""
        return [file.path for file in self.files] + [reported.log for reported in self.reported if reported.log is not None]

    def choose(self, method: str, seed: int | None) -> Control | ControlFile | None:
        """The most specific control of a network: a checkpoint, a report or log, its method's number, the number."""
        closest = _closest(self.files, method, seed) or _closest(self.reported, method, seed)
        if isinstance(closest, Reported):
            closest.check_not_of(method, seed)
        if closest is not None:
            return closest.control if isinstance(closest, Reported) else closest
        named = _base(method, self.by_method)
        if named is not None:
            return Control(Accuracy(self.by_method[named]), method=named)
        return None if self.number is None else Control(Accuracy(self.number))

    def path_for(self, method: str, seed: int | None) -> Path | None:
        """The file that the control of a network is read from, if it is one, and it is clear which."""
        try:
            chosen = self.choose(method, seed)
        except AuditError:
            return None
        if isinstance(chosen, ControlFile):
            return chosen.path
        return next((reported.log for reported in self.reported if reported.control is chosen), None)

    def choose_for(self, method: str, seed: int | None) -> Control | ControlFile | None:
        """The control of a network, none where none was supplied; that somebody supplied some and none fits is an error."""
        chosen = self.choose(method, seed)
        if chosen is None and self:
            whose = sorted({*self.by_method, *(str(f.method) for f in self.files), *(str(r.method) for r in self.reported)})
            raise AuditError(
                f"none of the controls supplied is for {method}: they are for {', '.join(whose)}; name its own "
                f"({method}=ACCURACY, a file frozen_{method}_s<seed>.pt), or one number for all"
            )
        return chosen

    @classmethod
    def of(cls, value: float | Mapping[str, float] | Control | str | Path | None, *more: str | Path) -> Controls:
        """Controls from what a caller of the library has at hand."""
        if value is None:
            return cls()
        if isinstance(value, Mapping):
            _check_some(value, "an empty mapping")
            return cls(by_method={name: check_accuracy(acc, f"control of {name}") for name, acc in value.items()})
        if isinstance(value, Control):
            return cls(reported=[Reported(value, value.method, value.seed)])
        if isinstance(value, (int, float)):
            return cls(number=check_accuracy(value, "control accuracy"))
        return parse_controls([str(value), *map(str, more)])


def parse_controls(values: Sequence[str], expand: Any = None) -> Controls:
    """Controls as the command line gives them: 0.349, dfa=0.349, or a file or glob: checkpoints, training logs, JSON."""
    number: float | None = None
    by_method: dict[str, float] = {}
    reported: list[Reported] = []
    files: list[ControlFile] = []
    for value in values:
        parsed = _number(value)
        if parsed is not None:
            number = _only(number, check_accuracy(parsed, f"control {value!r}"), "all networks")
            continue
        if value.endswith("%"):
            raise AuditError(f"control {value!r}: accuracies are fractions in [0, 1]; did you pass a percentage?")
        method, equals, rest = value.partition("=")
        parsed = _number(rest) if equals else None
        if parsed is not None:
            _put(by_method, method.strip(), check_accuracy(parsed, f"control {value!r}"))
            continue
        # A single JSON file is opened where it is: what is wrong with it is said by whoever reads it.
        alone = value.endswith(".json") and (Path(value).exists() or not glob.has_magic(value))
        for path in [Path(value)] if alone or not expand else expand(value):
            if path.suffix == ".json":
                _read_json(path, by_method, reported)
            elif path.suffix == ".jsonl":
                reported += _from_logs(path)
            else:
                files.append(ControlFile.named(path))
    controls = Controls(number, by_method, reported, files)
    _check_some(controls, ", ".join(values))
    return controls


def _check_some(supplied: object, where: str) -> None:
    """What was given for a control holds one; else nobody would see that (d) has nothing to compare with."""
    if not supplied:
        raise AuditError(f"no control in {where}: give an accuracy, METHOD=ACCURACY, a control checkpoint, log or report")


def _only(before: float | None, accuracy: float, whose: str) -> float:
    """An accuracy that is the only one of its kind; of two, nobody knows which is meant."""
    if before is not None and before != accuracy:
        raise AuditError(
            f"two controls for {whose}, {before:g} and {accuracy:g}, and a network has one: say whose each is, "
            "METHOD=ACCURACY, or give a file a seed"
        )
    return accuracy


def _put(by_method: dict[str, float], method: str, accuracy: float) -> None:
    by_method[method] = _only(by_method.get(method), accuracy, method)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read_json(path: Path, by_method: dict[str, float], reported: list[Reported]) -> None:
    """A mapping of methods to accuracies, one report, an audit, or a training log.

    A report gives its own control, else its accuracy; a log its final accuracy.
    """
    try:
        content = parse_json(read_bytes(path, LARGEST_JSON))
    except (OSError, ValueError, RecursionError) as error:
        raise AuditError(f"control {path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise AuditError(f"control {path}: expected an object, found {type(content).__name__}")
    if any(isinstance(value, list) and (key == "log" or key.endswith("_log")) for key, value in content.items()):
        reported += _from_logs(path)
        return
    if "reports" not in content and "residual_norms" not in content:
        for name, accuracy in content.items():
            _put(by_method, str(name), check_accuracy(accuracy, f"control {path}: {name}"))
        return
    reports = content.get("reports", [content])
    if not isinstance(reports, (dict, list)):
        raise AuditError(f"control {path}: reports: expected an object or a list, found {type(reports).__name__}")
    for values in reports.values() if isinstance(reports, dict) else reports:
        try:
            report = DiagnosticReport.from_dict(values)
        except AuditError as error:
            raise AuditError(f"control {path}: {error}") from error
        found = _from_report(report, path)
        if found is not None:
            reported.append(found)


def _from_report(report: DiagnosticReport, path: Path) -> Reported | None:
    """The control in a report, or of a report on a control network that network; a trained one without control gives none."""
    data = str(report.environment.get("data_sha256") or "") or None
    if report.control is not None:
        return Reported(_on(report.control, data), report.method_name, report.seed)
    method, kind = method_and_kind(report.method_name)
    source = f"earlier report {path.name}"
    if report.frozen_baseline_acc is not None:
        stated = Control(Accuracy(report.frozen_baseline_acc), source, method, report.seed)
        return Reported(_on(stated, data), method, report.seed)
    if kind is None:
        return None
    if report.headline_acc is None:
        raise AuditError(f"control {path}: the report on {report.method_name} has no accuracy")
    accuracy = report.accuracy or Accuracy(report.headline_acc)
    return Reported(_on(Control(accuracy, source, method, report.seed, kind), data), method, report.seed)


def _on(control: Control, data: str | None) -> Control:
    """A control of a report with the digest of the test data of that report, where it does not have its own."""
    accuracy = control.accuracy
    return control if accuracy.data or data is None else replace(control, accuracy=replace(accuracy, data=data))


def _from_logs(path: Path) -> list[Reported]:
    """The control that each log in a file is of, labelled like a control checkpoint by config or name."""
    try:
        logs = read_logs(path)
    except AuditError as error:
        raise AuditError(f"control: {error}") from error
    return [_from_log(log) for log in logs]


def _from_log(log: TrainingLog) -> Reported:
    if log.accuracy is None:
        raise AuditError(f"control: the log has no accuracy; put final_test_acc or acc_eval into it\n  {log.path}")
    method, kind = method_and_kind(log.method)
    file = ControlFile(log.path, method, log.seed, kind or ControlKind.UNMARKED)
    control = control_of(file, {**log.config, "method": log.method}, log.accuracy)
    return Reported(control, control.method, control.seed, log.path)


def _closest(candidates: Sequence[C], method: str, seed: int | None) -> C | None:
    """The control of this method or of the one it is a variant of, else of no or the only method; the same seed first."""
    methods = {candidate.method for candidate in candidates if candidate.method}
    base = _base(method, methods)
    if base is not None:
        fitting = [candidate for candidate in candidates if candidate.method == base]
    else:
        unnamed = [candidate for candidate in candidates if candidate.method is None]
        fitting = unnamed or (list(candidates) if len(methods) == 1 else [])
    ranked = sorted(fitting, key=lambda candidate: (candidate.seed != seed, candidate.seed is not None, candidate.shallow))
    _check_one(ranked, method)
    return next(iter(ranked), None)


def _check_one(ranked: Sequence[C], method: str) -> None:
    """Two controls of one method, seed and kind are two answers to one question."""
    first = next(iter(ranked), None)
    same = next((other for other in ranked if first is not None and _alike(other, first) and other != first), None)
    if first is not None and same is not None:
        of = "" if first.seed is None else f", seed {first.seed}"
        raise AuditError(
            f"two controls fit {method}, and nobody says which is meant: {first.name} and {same.name}, both of "
            f"{first.method or 'no method'}{of}; leave out one of them"
        )


def _alike(one: C, other: C) -> bool:
    return (one.method, one.seed, one.shallow) == (other.method, other.seed, other.shallow)


def _base(method: str, known: Iterable[str]) -> str | None:
    """The longest known method that this one is, or is a variant of: dfa for dfa-lam."""
    fitting = [name for name in known if method == name or method.startswith(tuple(f"{name}{mark}" for mark in "-_+"))]
    return max(fitting, key=len, default=None)
