"""The numbers and rules by which a measurement is judged."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from .errors import AuditError
from .words import limit

SHORT_NAMES = {"margin_pp": "frozen_acc_margin_pp"}
"""Names that a marker or the command line may use instead of the published field."""
OTHERS: dict[str, float] = {}
"""The thresholds of other packages' diagnostics, with their defaults."""
_RULES = {"growth": ("per_block", "cumulative"), "confounds": ("excuse", "flag")}
_RANGES = {
    "g_norm_floor": (0.0, math.inf),
    "h_norm_explosion_ratio": (0.0, math.inf),
    "stability_drift_ceiling": (-1.0, 1.0),
    "frozen_acc_margin_pp": (-100.0, 100.0),
    "sample_invariance_minimum": (-1.0, 1.0),
    "depth_utility_minimum_pp": (-100.0, 100.0),
    "credit_aligned_share": (0.0, 1.0),
}


class DiagnosticThresholds(msgspec.Struct, frozen=True):
    """The published thresholds, and which of the published forms of (a), (b) and (c) apply.

    >>> DiagnosticThresholds().replace(margin_pp=1.5, growth="cumulative").frozen_acc_margin_pp
    1.5
    """

    g_norm_floor: float = 1e-7
    h_norm_explosion_ratio: float = 50.0
    stability_drift_ceiling: float = 0.30
    frozen_acc_margin_pp: float = 2.0
    sample_invariance_minimum: float = 0.10
    depth_utility_minimum_pp: float = 3.0
    credit_aligned_share: float = 0.5
    growth: Literal["per_block", "cumulative"] = "per_block"
    confounds: Literal["excuse", "flag"] = "excuse"
    others: dict[str, float] = {}
    """Those of diagnostics of other packages, by name, where they are not the defaults."""

    def __post_init__(self) -> None:
        for name, allowed in _RULES.items():
            rule = getattr(self, name)
            if rule not in allowed:
                raise AuditError(f"{name} must be {' or '.join(allowed)}, not {rule!r}")
        for name, (low, high) in _RANGES.items():
            number = _number(name, getattr(self, name), low, high)
            msgspec.structs.force_setattr(self, name, number)
        others = {name: _number(name, value) for name, value in self.others.items()}
        msgspec.structs.force_setattr(self, "others", others)

    def replace(self, **changes: float | str) -> DiagnosticThresholds:
        """These thresholds with some changed, by full or short name; numbers may be text."""
        current = self.by_name()
        full = {SHORT_NAMES.get(name, name): value for name, value in changes.items()}
        unknown = sorted(full.keys() - current.keys())
        if unknown:
            raise AuditError(
                f"unknown threshold {', '.join(map(repr, unknown))}; known: "
                f"{', '.join([*current, *SHORT_NAMES])}"
            )
        values: dict[str, Any] = {**current, **full}
        published = {name: values.pop(name) for name in self.__struct_fields__ if name in values}
        return DiagnosticThresholds(**published, others=values)

    def by_name(self) -> dict[str, float | str]:
        """Every threshold and rule, those of other packages among them.

        >>> DiagnosticThresholds().by_name()["h_norm_explosion_ratio"]
        50.0
        """
        published = msgspec.structs.asdict(self)
        del published["others"]
        return {**published, **OTHERS, **self.others}


def _number(name: str, value: object, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number in its range: 30 for 0.30 is a slip, infinity would switch a check off."""
    number = _as_float(value)
    if math.isfinite(number) and low <= number <= high:
        return number
    raise AuditError(
        f"threshold {name} must be a finite number, {limit(low)} to {limit(high)}, not {value!r}"
    )


def _as_float(value: Any) -> float:
    """The value as a float, also from text; NaN where it is no number."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
