"""The margin of a method over its seeds: paired by seed and by image, with a three-valued verdict."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import AuditError
from .statistics import Z95, Interval

RESAMPLES = 2000
GENERATOR_SEED = 20_000


class SeedVerdict(str, enum.Enum):
    """What the interval of the margin says of the minimum."""

    PASS = "PASS"
    FIRE = "FIRE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class SeedMargin:
    """The mean margin of a method over its seeds, in percentage points."""

    seeds: int
    images: int
    margin: float
    interval: Interval
    minimum: float
    seed_sd: float
    """The standard deviation of the margin from seed to seed, as measured on these images."""
    image_sd: float
    """The standard deviation over images of the difference between network and control, averaged over seeds."""

    @property
    def verdict(self) -> SeedVerdict:
        """PASS if the lower bound clears the minimum, FIRE if the upper bound is below it."""
        if self.interval.low > self.minimum:
            return SeedVerdict.PASS
        return SeedVerdict.FIRE if self.interval.high < self.minimum else SeedVerdict.INCONCLUSIVE

    @property
    def least_p(self) -> float:
        """The smallest one-sided p that a sign-flip test can reach with this many seeds."""
        return 0.5**self.seeds

    def needed(self) -> str:
        """How many seeds, or how many images, would decide if the margin stayed what it is."""
        distance = abs(self.margin - self.minimum)
        if distance == 0:
            return "the margin is exactly the minimum: no number of seeds or images decides"
        allowed = (distance / Z95) ** 2
        from_images, from_seeds = self.image_sd**2 / self.images, self.seed_sd**2 / self.seeds
        if from_images < allowed:
            return f"about {max(self.seeds + 1, math.ceil(self.seed_sd**2 / (allowed - from_images)))} seeds would decide"
        images = math.ceil(self.image_sd**2 / (allowed - from_seeds)) if from_seeds < allowed else None
        if images is None:
            return "neither more seeds nor more test images alone would decide"
        return f"more seeds alone cannot decide; about {images:,} test images would"


def seed_margin(ours: Sequence[Sequence[bool]], theirs: Sequence[Sequence[bool]], minimum: float) -> SeedMargin:
    """Bootstrap the margin: resample seeds, then images, with one set of images for all seeds of a resample.

    ``ours[s][i]`` says whether the network of seed s has image i right, ``theirs[s][i]`` whether its control has.
    """
    import numpy as np

    lengths = {len(row) for row in (*ours, *theirs)}
    if len(ours) < 2 or len(ours) != len(theirs):
        raise AuditError(
            f"a margin over seeds needs two or more seeds, each with its control; got {len(ours)} and {len(theirs)}"
        )
    if len(lengths) != 1 or 0 in lengths:
        raise AuditError(f"the seeds were evaluated on different numbers of images: {sorted(lengths)}")
    differences = np.asarray(ours, np.int8) - np.asarray(theirs, np.int8)
    seeds, images = differences.shape
    generator = np.random.Generator(np.random.PCG64(GENERATOR_SEED))
    drawn = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        rows = np.bincount(generator.integers(0, seeds, seeds), minlength=seeds) / seeds
        columns = np.bincount(generator.integers(0, images, images), minlength=images) / images
        drawn[index] = rows @ differences @ columns
    low, high = np.quantile(100 * drawn, [0.025, 0.975])
    per_seed = 100 * differences.mean(1)
    return SeedMargin(
        seeds=seeds,
        images=images,
        margin=float(per_seed.mean()),
        interval=Interval(float(low), float(high), f"bootstrap over {seeds} seeds and {images:,} images"),
        minimum=minimum,
        seed_sd=float(per_seed.std(ddof=1)),
        image_sd=float(100 * differences.mean(0).std(ddof=1)),
    )
