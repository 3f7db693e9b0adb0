"""What norms with holes still say of the growth of the blocks between two layers that are known."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

SLACK = 1e-12
"""How much of a logarithm rounding may make up: 50, 2,500 and 125,000 over 1 are exact powers of 50 and not a hair above."""


@dataclass(frozen=True)
class Segment:
    """The blocks between two known layers with no known layer between them."""

    start: int
    end: int
    before: float
    after: float

    @property
    def blocks(self) -> int:
        """How many blocks lie between the two layers."""
        return self.end - self.start

    @property
    def growth(self) -> float:
        """The geometric mean of the blocks' growth, which is a lower bound of the largest; of one block, its growth itself."""
        if self.blocks == 1:
            return ratio(self.after, self.before)
        if not self._usable:
            return math.nan
        quotient = self.after / self.before
        return quotient ** (1 / self.blocks) if 0 < quotient < math.inf else _exp(self._log / self.blocks)

    def exceeds(self, limit: float) -> bool:
        """Whether one of the blocks must grow by more than the limit."""
        if self.blocks == 1 or not self._usable:
            return self.growth > limit
        if limit == 0:
            return True
        allowed = self.blocks * math.log(limit)
        return self._log > allowed + SLACK * max(1.0, abs(allowed))

    def could_exceed(self, limit: float) -> int:
        """How many of the blocks could grow by the limit or more if none shrinks the stream: ⌊ln growth / ln limit⌋."""
        if self.blocks == 1 or not self._usable or limit <= 1 or self._log <= 0:
            return 0
        powers = self._log / math.log(limit)
        return min(self.blocks, math.floor(powers + SLACK * max(1.0, powers)))

    @property
    def _usable(self) -> bool:
        return 0 < self.before < math.inf and 0 < self.after < math.inf

    @property
    def _log(self) -> float:
        return math.log(self.after) - math.log(self.before)


def segments(norms: Sequence[float | None]) -> list[Segment]:
    """The stream cut at every known layer."""
    known = [(index, norm) for index, norm in enumerate(norms) if norm is not None]
    return [Segment(i, j, before, after) for (i, before), (j, after) in itertools.pairwise(known)]


def ratio(after: float, before: float) -> float:
    """after/before; NaN where both are zero."""
    if before == 0:
        return math.nan if after == 0 else math.inf
    return after / before


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
