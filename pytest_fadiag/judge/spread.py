"""What the uncertainty of a margin over seeds is made of, and how many seeds and test images would make it small enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .statistics import Z95

if TYPE_CHECKING:
    from numpy import ndarray

REPEATS = 0.67
"""Standard errors by which the interval is to clear the minimum: about three in four repetitions of the experiment then do.

Without them a margin that is just wide enough would be decided by every second repetition only.
"""
MOST_SEEDS, MOST_IMAGES, MOST_TIMES = 10_000, 1_000_000_000, 10_000
"""Beyond these nobody is helped by a number."""


@dataclass(frozen=True)
class Spread:
    """The standard deviations, in percentage points, of the parts of network minus control for one seed and one image."""

    seed: float
    """From seed to seed, on infinitely many images."""
    common: float
    """From image to image, the same for all seeds: it shrinks with images alone."""
    specific: float
    """From image to image, another for every seed: it shrinks with either."""

    @classmethod
    def of(cls, differences: ndarray) -> Spread:
        """By the method of moments from a table of seeds by images; a part that comes out negative is 0."""
        seeds, images = differences.shape
        if images < 2:
            return cls(float(100 * differences.mean(1).std(ddof=1)), 0.0, 0.0)
        by_seed, by_image = differences.mean(1), differences.mean(0)
        rest = differences - by_seed[:, None] - by_image + differences.mean()
        specific = float((rest**2).sum() / ((seeds - 1) * (images - 1)))
        seed = float(by_seed.var(ddof=1)) - specific / images
        common = float(by_image.var(ddof=1)) - specific / seeds
        return cls(*(100 * math.sqrt(max(0.0, variance)) for variance in (seed, common, specific)))

    def variance(self, seeds: int, images: int) -> float:
        """The variance of a mean over so many seeds and images, both drawn anew; without images, that over seeds alone."""
        from_images = (self.common**2 + self.specific**2 / seeds) / images if images else 0.0
        return self.seed**2 / seeds + from_images

    def resampled(self, seeds: int, images: int) -> float:
        """The variance that resampling seeds, then images shows of such a mean, as it is expected to come out.

        Of n seeds it sees (n-1)/n of the variance between them, and noise of each seed's own on its images it counts up to
        three times: among the seeds, among the images, and where both are drawn.
        """
        from_images = (self.common**2 + self.specific**2 * (3 - 2 / seeds) / seeds) / images if images else 0.0
        return (1 - 1 / seeds) * self.seed**2 / seeds + from_images


@dataclass(frozen=True)
class Present:
    """What is there: a margin so far from its minimum, and half the width of its interval on that side."""

    spread: Spread
    seeds: int
    images: int
    """0 where nothing is known of them."""
    distance: float
    half: float
    assumed: bool = False
    """Whether the number of images is an assumption."""

    def needed(self) -> str:
        """What would decide, if margin and spread stayed what they are: seeds, images, or where neither does, both."""
        if self.distance == 0:
            return "the margin is exactly the minimum: only what moves it would decide, and how much cannot be told"
        seeds = _least(self.seeds, MOST_SEEDS, lambda number: self._decides(number, self.images))
        images = _least(self.images, MOST_IMAGES, lambda number: self._decides(self.seeds, number)) if self.images else None
        ways = [self._more_seeds(seeds)] if seeds else []
        ways += [self._more_images(images)] if images else []
        if ways:
            return f"about {' or '.join(ways)} would decide{self._short()}"
        times = _least(10, MOST_TIMES, lambda tenths: self._decides(*self._times(tenths))) if self.images else None
        if times is None:
            return "the margin is so close to the minimum that no usual number of seeds and test images is expected to decide"
        seeds, images = self._times(times)
        return f"about {self._more_seeds(seeds)} together with {self._more_images(images)} would decide{self._short()}"

    def _short(self) -> str:
        """What alone falls short even where every second repetition would do: nothing is ruled out that may well decide."""
        short = [] if self._decides(MOST_SEEDS, self.images, 0.0) else ["seeds"]
        if self.images and not self._decides(self.seeds, MOST_IMAGES, 0.0):
            short.append("test images")
        return f"; more {' or '.join(short)} alone are not expected to" if short else ""

    def _times(self, tenths: int) -> tuple[int, int]:
        return -(-self.seeds * tenths // 10), -(-self.images * tenths // 10)

    def _decides(self, seeds: int, images: int, repeats: float = REPEATS) -> bool:
        """Whether the interval is expected to clear the minimum, and not by a hair."""
        now = math.sqrt(self.spread.resampled(self.seeds, self.images))
        # The present interval tells by how much a percentile of few seeds differs from 1.96 standard errors. With more seeds
        # it comes closer to them, so that an interval that is narrow by their small number is not counted on.
        scale = self.half / (Z95 * now) if now else 1.0
        scale = max(1.0, scale) if seeds > self.seeds else scale
        half = scale * Z95 * math.sqrt(self.spread.resampled(seeds, images))
        return half + repeats * math.sqrt(self.spread.variance(seeds, images)) <= self.distance

    def _more_seeds(self, total: int) -> str:
        return f"{total - self.seeds:,} more seeds ({total:,} in all)"

    def _more_images(self, total: int) -> str:
        assumed = f", {self.images:,} being assumed now" if self.assumed else ""
        return f"{total - self.images:,} more test images ({total:,} in all{assumed})"


def _least(now: int, most: int, decides: Callable[[int], bool]) -> int | None:
    """The smallest number above the present one that decides, where one up to the largest does: what decides stays so."""
    low, high = now, now + 1
    while not decides(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high
