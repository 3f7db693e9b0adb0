"""The numbers and rules by which a measurement is judged."""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, Literal, get_args

import msgspec

from .errors import AuditError
from .words import limit

SHORT_NAMES = {"margin_pp": "frozen_acc_margin_pp"}
"""Names that a marker or the command line may use instead of the published field."""
OTHERS: dict[str, float] = {}
"""The thresholds of other packages' diagnostics, with their defaults."""
Growth = Literal["per_block", "cumulative"]
Confounds = Literal["excuse", "flag"]
RULES = {"growth": get_args(Growth), "confounds": get_args(Confounds)}
Cosine = Annotated[float, msgspec.Meta(ge=-1, le=1)]
Points = Annotated[float, msgspec.Meta(ge=-100, le=100)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(ge=0)]


class DiagnosticThresholds(msgspec.Struct, frozen=True):
    """The published thresholds, and which of the published forms of (a), (b) and (c) apply.

    >>> DiagnosticThresholds().replace(margin_pp=1.5, growth="cumulative").frozen_acc_margin_pp
    1.5
    """

    g_norm_floor: Positive = 1e-7
    h_norm_explosion_ratio: Positive = 50.0
    stability_drift_ceiling: Cosine = 0.30
    frozen_acc_margin_pp: Points = 2.0
    sample_invariance_minimum: Cosine = 0.10
    depth_utility_minimum_pp: Points = 3.0
    credit_aligned_share: Share = 0.5
    growth: Growth = "per_block"
    confounds: Confounds = "excuse"
    others: dict[str, float] = {}
    """Those of diagnostics of other packages, by name, where they are not the defaults."""

    def __post_init__(self) -> None:
        for name, kind in _numbers().items():
            number = _number(name, getattr(self, name), kind.ge, kind.le)
            msgspec.structs.force_setattr(self, name, number)
        for name, allowed in RULES.items():
            rule = getattr(self, name)
            if rule not in allowed:
                raise AuditError(f"{name} must be {' or '.join(allowed)}, not {rule!r}")
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


@cache
def _numbers() -> dict[str, msgspec.inspect.FloatType]:
    """The type of each threshold that is a number, with its range."""
    numbers = {}
    for field in msgspec.structs.fields(DiagnosticThresholds):
        kind = msgspec.inspect.type_info(field.type)
        if isinstance(kind, msgspec.inspect.FloatType):
            numbers[field.name] = kind
    return numbers


def _number(
    name: str, value: object, least: float | None = None, most: float | None = None
) -> float:
    """A finite number in its range: 30 for 0.30 is a slip, infinity would switch a check off."""
    low = -math.inf if least is None else least
    high = math.inf if most is None else most
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
