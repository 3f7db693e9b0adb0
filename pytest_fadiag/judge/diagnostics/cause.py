"""Why a finding is not a plain pass or fire: what excuses it, what keeps it from being exact, what is odd about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class CauseKind(enum.Enum):
    """The words of each cause; braces stand for its detail."""

    SATURATED = "saturated"
    ABOVE_FLOOR_PER_ERROR = "above the floor per unit error"
    NOT_SAMPLE_INVARIANT = "not sample-invariant"
    NOT_ONE_CLASS = "not driven to one class"
    BIASED_OUTPUT = "biased output {:.3f}"
    UNRESOLVED = "not resolved by one test set"
    DRAWS_DIFFER = "not resolved: the draws of the null differ"
    QUESTIONED = "questioned control: {}"
    NON_FINITE = "non-finite"
    UNDEFINED = "undefined"
    UNTRAINED = "blocks as initialised"
    ZERO_STREAM = "all-zero stream"
    ZERO_GRADIENT = "all-zero gradient"
    BOUND = "a bound"
    FLOOR_REFERENCE = "against a reference at the floor"
    UNPROVEN = "reference not proven"
    PROXY = "{} stands in for ‖g_L‖"
    BATCH_ASSUMED = "batch size {:,} assumed"
    TRAINING_BATCH_ASSUMED = "batch size {:,} assumed, that of the training"
    OTHER_BATCHES = "batches of {:,}, not 128"
    UNKNOWN_BATCHES = "batches of unknown size, not 128"


EXCUSES = frozenset(
    {CauseKind.SATURATED, CauseKind.ABOVE_FLOOR_PER_ERROR, CauseKind.NOT_SAMPLE_INVARIANT, CauseKind.NOT_ONE_CLASS}
)
"""The causes for which a number that crosses its threshold passes all the same."""


@dataclass(frozen=True)
class Cause:
    """One cause, with the number or the symbol that it names."""

    kind: CauseKind
    detail: float | str | None = None

    @property
    def text(self) -> str:
        """The cause in words: «biased output 0.550»."""
        return self.kind.value.format(self.detail)
