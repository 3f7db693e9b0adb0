"""Which frozen-random control belongs to which audited network; free of torch, so that a cached audit needs none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..protocol.control import UNMARKED, Control
from ..protocol.errors import AuditError
from ..protocol.measurement import Accuracy, check_accuracy
from ..protocol.report import DiagnosticReport
from .identity import identify

_KIND = re.compile(r"(?:^|[-_])(frozen|shallow)(?=$|[-_])")
C = TypeVar("C", "ControlFile", "Reported")


@dataclass(frozen=True)
class ControlFile:
    """A control checkpoint, by what its name says of it."""

    path: Path
    method: str | None
    seed: int | None
    kind: str = "frozen"

    @classmethod
    def named(cls, path: Path) -> ControlFile:
        """What ``frozen_<method>_s<seed>``, ``<method>-frozen_s<seed>`` or ``frozen_s<seed>`` say."""
        stem, seed = identify(path)
        method, kind = method_and_kind(stem)
        return cls(path, method, seed, kind or UNMARKED)


def method_and_kind(name: str) -> tuple[str | None, str | None]:
    """The method and the kind of control that a name like ``frozen_dfa`` or ``dfa-shallow`` gives, where it gives them."""
    kind = _KIND.search(name)
    return (_KIND.sub("", name).strip("-_") or None, kind[1]) if kind else (name, None)


@dataclass(frozen=True)
class Reported:
    """A control from an earlier report, and for which method and seed it stands."""

    control: Control
    method: str | None
    seed: int | None


@dataclass(frozen=True)
class Controls:
    """Every control that was supplied: one number for all, numbers by method, controls of earlier reports, checkpoints."""

    number: float | None = None
    by_method: Mapping[str, float] = field(default_factory=dict)
    reported: Sequence[Reported] = ()
    files: Sequence[ControlFile] = ()

    def __bool__(self) -> bool:
        return self.number is not None or bool(self.by_method or self.reported or self.files)

    def choose(self, method: str, seed: int | None) -> Control | ControlFile | None:
        """The most specific control of a network: a checkpoint, an earlier report, its method's number, the number."""
        closest = _closest(self.files, method, seed) or _closest(self.reported, method, seed)
        if closest is not None:
            return closest.control if isinstance(closest, Reported) else closest
        named = _base(method, self.by_method)
        if named is not None:
            return Control(Accuracy(self.by_method[named]), method=named)
        return None if self.number is None else Control(Accuracy(self.number))

    @classmethod
    def of(cls, value: float | Mapping[str, float] | Control | str | Path | None, *more: str | Path) -> Controls:
        """Controls from what a caller of the library has at hand."""
        if value is None:
            return cls()
        if isinstance(value, Mapping):
            return cls(by_method={name: check_accuracy(acc, f"control of {name}") for name, acc in value.items()})
        if isinstance(value, Control):
            return cls(reported=[Reported(value, value.method, value.seed)])
        if isinstance(value, (int, float)):
            return cls(number=check_accuracy(value, "control accuracy"))
        return parse_controls([str(value), *map(str, more)])


def parse_controls(values: Iterable[str], expand: Any = None) -> Controls:
    """Controls as the command line gives them: 0.349, dfa=0.349, a checkpoint or glob, or a JSON file."""
    number: float | None = None
    by_method: dict[str, float] = {}
    reported: list[Reported] = []
    files: list[ControlFile] = []
    for value in values:
        parsed = _number(value)
        if parsed is not None:
            number = check_accuracy(parsed, f"control {value!r}")
            continue
        if value.endswith("%"):
            raise AuditError(f"control {value!r}: accuracies are fractions in [0, 1]; did you pass a percentage?")
        method, equals, rest = value.partition("=")
        parsed = _number(rest) if equals else None
        if parsed is not None:
            by_method[method.strip()] = check_accuracy(parsed, f"control {value!r}")
        elif value.endswith(".json"):
            _read_json(Path(value), by_method, reported)
        else:
            files += [ControlFile.named(path) for path in (expand(value) if expand else [Path(value)])]
    return Controls(number, by_method, reported, files)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _read_json(path: Path, by_method: dict[str, float], reported: list[Reported]) -> None:
    """A mapping of methods to accuracies, one report, or an audit; a report gives its own control, else its accuracy."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise AuditError(f"control {path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise AuditError(f"control {path}: expected an object, found {type(content).__name__}")
    if "reports" not in content and "residual_norms" not in content:
        by_method.update({str(name): check_accuracy(acc, f"control {path}: {name}") for name, acc in content.items()})
        return
    reports = content.get("reports", [content])
    for values in reports.values() if isinstance(reports, dict) else reports:
        try:
            report = DiagnosticReport.from_dict(values)
        except (AuditError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise AuditError(f"control {path}: {error}") from error
        found = _from_report(report, path)
        if found is not None:
            reported.append(found)


def _from_report(report: DiagnosticReport, path: Path) -> Reported | None:
    """The control in a report, or of a report on a control network that network; a trained one without control gives none."""
    if report.control is not None:
        return Reported(report.control, report.method_name, report.seed)
    method, kind = method_and_kind(report.method_name)
    source = f"earlier report {path.name}"
    if report.frozen_baseline_acc is not None:
        return Reported(Control(Accuracy(report.frozen_baseline_acc), source, method, report.seed), method, report.seed)
    if kind is None:
        return None
    accuracy = report.accuracy or Accuracy(report.headline_acc)
    return Reported(Control(accuracy, source, method, report.seed, kind), method, report.seed)


def _closest(candidates: Sequence[C], method: str, seed: int | None) -> C | None:
    """The control of this method or of the one it is a variant of, else of no or the only method; the same seed first."""
    methods = {candidate.method for candidate in candidates if candidate.method}
    base = _base(method, methods)
    if base is not None:
        fitting = [candidate for candidate in candidates if candidate.method == base]
    else:
        unnamed = [candidate for candidate in candidates if candidate.method is None]
        fitting = unnamed or (list(candidates) if len(methods) == 1 else [])
    return min(fitting, key=lambda candidate: (candidate.seed != seed, candidate.seed is not None), default=None)


def _base(method: str, known: Iterable[str]) -> str | None:
    """The longest known method that this one is, or is a variant of: dfa for dfa-lam."""
    fitting = [name for name in known if method == name or method.startswith(tuple(f"{name}{mark}" for mark in "-_+"))]
    return max(fitting, key=len, default=None)
