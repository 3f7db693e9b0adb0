"""The numbers and rules by which a measurement is judged."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from .errors import AuditError

Growth = Literal["per_block", "cumulative"]
Confounds = Literal["excuse", "flag"]
GROWTH_FORMS: tuple[str, ...] = get_args(Growth)
CONFOUND_RULES: tuple[str, ...] = get_args(Confounds)
ThresholdChanges = Mapping[str, float | str]
"""Some thresholds and rules, by full or short name."""
SHORT_NAMES = {"margin_pp": "frozen_acc_margin_pp"}
"""Names a marker or the command line may use instead of the published field."""


@dataclass(frozen=True)
class DiagnosticThresholds:
    """The published thresholds, and which of the published forms of (a), (b) and (c) apply."""

    g_norm_floor: float = 1e-7
    h_norm_explosion_ratio: float = 50.0
    stability_drift_ceiling: float = 0.30
    frozen_acc_margin_pp: float = 2.0
    sample_invariance_minimum: float = 0.10
    depth_utility_minimum_pp: float = 3.0
    credit_aligned_share: float = 0.5
    growth: Growth = "per_block"
    confounds: Confounds = "excuse"
    others: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Those of diagnostics of other packages, by name."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not _is_finite(value) or not low <= value <= high:
                span = f"from {low:g} to {high:g}" if math.isfinite(high) else f"from {low:g} on, and finite"
                raise AuditError(f"threshold {name} must be a number {span}, not {value!r}")
            object.__setattr__(self, name, float(value))
        for name, value in self.others.items():
            if not _is_finite(value):
                raise AuditError(f"threshold {name} must be a finite number, not {value!r}")
        _one_of("growth", self.growth, GROWTH_FORMS)
        _one_of("confounds", self.confounds, CONFOUND_RULES)

    def replace(self, **changes: float | str) -> DiagnosticThresholds:
        """These thresholds with some changed, by full or short name; an unknown name is an error that lists the known ones."""
        full = {SHORT_NAMES.get(name, name): value for name, value in changes.items()}
        check_names(full, self.others)
        others = {name: full.pop(name, value) for name, value in self.others.items()}
        values: dict[str, Any] = {**asdict(self), "others": others, **full}
        return DiagnosticThresholds(**values)

    def by_name(self) -> dict[str, float | str]:
        """Every threshold and rule, those of other packages among them."""
        values = asdict(self)
        others = values.pop("others")
        return {**values, **others}

    def to_dict(self) -> dict[str, Any]:
        """The thresholds as plain JSON values."""
        return asdict(self)


def check_names(names: Iterable[str], others: Iterable[str] = ()) -> None:
    """Raise an error that lists the known thresholds if one of these is not among them, and so would not apply."""
    unknown = sorted(set(names) - {*threshold_names(), *others})
    if unknown:
        known = (*threshold_names(short=True), *others)
        raise AuditError(f"unknown threshold {', '.join(map(repr, unknown))}; known: {', '.join(known)}")


def threshold_names(*, short: bool = False) -> tuple[str, ...]:
    """The names that :meth:`DiagnosticThresholds.replace` takes, with the short ones at the end if asked."""
    names = tuple(field.name for field in fields(DiagnosticThresholds) if field.name != "others")
    return names + tuple(SHORT_NAMES) if short else names


# A cosine lies in [-1, 1] and a margin of accuracies in [-100, 100] pp, so a value outside can only be a slip (30 for 0.30).
_RANGES: dict[str, tuple[float, float]] = {
    "g_norm_floor": (0.0, math.inf),
    "h_norm_explosion_ratio": (0.0, math.inf),
    "stability_drift_ceiling": (-1.0, 1.0),
    "frozen_acc_margin_pp": (-100.0, 100.0),
    "sample_invariance_minimum": (-1.0, 1.0),
    "depth_utility_minimum_pp": (-100.0, 100.0),
    "credit_aligned_share": (0.0, 1.0),
}


def _is_finite(value: object) -> bool:
    """Whether it is a number that a diagnostic can be judged by; an infinite one would switch it off without a word."""
    largest = sys.float_info.max
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -largest <= value <= largest


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise AuditError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
