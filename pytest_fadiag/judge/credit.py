"""What was measured of a method's credit, site by site, and what that makes of each site."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import AuditError
from .ranges import hold, hold_cosines

if TYPE_CHECKING:
    from torch import Tensor

CreditFunction = Callable[..., "Sequence[Tensor] | Tensor"]
"""Of ``(model, x, y)`` or ``(model, x, y, checkpoint)``: the method's credit at each block output."""
EMBEDDING = "h_0"
SAME = 1e-6
"""How far Γ may lie below 1 where the credit is the BP gradient itself, up to rounding."""


class SiteState(str, enum.Enum):
    """Whether credit at one site points down the loss."""

    ALIGNED = "aligned"
    NULL = "null"
    AGAINST = "against"
    UNDEFINED = "undefined"


@dataclass(frozen=True)
class Credit:
    """One entry a site, h_0 first where the method has credit there; NaN is undefined, and a nudge that is not resolved."""

    source: str
    """Where the credit came from."""
    sites: tuple[str, ...]
    gamma: tuple[float, ...]
    null_mean: tuple[float, ...]
    null_sd: tuple[float, ...]
    null_low: tuple[float, ...]
    null_high: tuple[float, ...]
    nudge: tuple[float, ...]
    random_nudge: tuple[tuple[float, ...], ...]
    """Of five random directions each: what 0 looks like."""
    magnitude: tuple[float, ...]
    undefined: tuple[int, ...]
    samples: int
    problem: str = ""
    """Why nothing of it was measured; empty where it was."""
    absent: bool = False
    """Whether that is for want of any credit, which is no fault where nobody asked for it in particular."""

    def __post_init__(self) -> None:
        hold(self, "undefined", "samples")
        hold(self, "null_sd", "magnitude", undefined=True)
        hold_cosines(self, "gamma", "null_mean", "null_low", "null_high")
        lists = ("gamma", "null_mean", "null_sd", "null_low", "null_high", "nudge", "random_nudge", "magnitude", "undefined")
        for name in lists:
            if len(getattr(self, name)) != len(self.sites):
                raise AuditError(
                    f"{name} must have an entry for each of {len(self.sites)} sites, not {len(getattr(self, name))}"
                )

    @property
    def state(self) -> tuple[SiteState, ...]:
        """Aligned above the null and downhill, against below it and uphill, else null; by Γ alone without a resolved nudge.

        Where fewer than half of the samples have a cosine, their median says nothing of the rest: undefined.
        """
        states = map(_state, self.gamma, self.null_low, self.null_high, self.nudge)
        return tuple(
            SiteState.UNDEFINED if 2 * left_out > self.samples else state
            for state, left_out in zip(states, self.undefined, strict=True)
        )

    @property
    def blocks(self) -> tuple[tuple[str, SiteState], ...]:
        """The block sites, which count; h_0 does not."""
        return tuple((site, state) for site, state in zip(self.sites, self.state, strict=True) if site != EMBEDDING)

    @property
    def aligned(self) -> int:
        """How many block sites are aligned."""
        return sum(state is SiteState.ALIGNED for _, state in self.blocks)

    @property
    def against(self) -> tuple[str, ...]:
        """The block sites at which the credit points up the loss."""
        return tuple(site for site, state in self.blocks if state is SiteState.AGAINST)

    @property
    def z(self) -> tuple[float, ...]:
        """How many standard deviations of the null Γ lies from its mean."""
        return tuple(
            (gamma - mean) / sd if sd else math.nan
            for gamma, mean, sd in zip(self.gamma, self.null_mean, self.null_sd, strict=True)
        )

    @property
    def is_gradient(self) -> bool:
        """Whether the credit is the BP gradient itself at every site, as far as its direction tells."""
        return bool(self.gamma) and SiteState.UNDEFINED not in self.state and all(gamma >= 1 - SAME for gamma in self.gamma)


def _state(gamma: float, low: float, high: float, nudge: float) -> SiteState:
    if math.isnan(gamma):
        return SiteState.UNDEFINED
    if gamma > high and not nudge <= 0:
        return SiteState.ALIGNED
    if gamma < low and not nudge >= 0:
        return SiteState.AGAINST
    return SiteState.NULL
