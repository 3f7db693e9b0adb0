"""The margin of a method over its seeds: paired by seed and by image where that is known, with a three-valued verdict."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import AuditError
from .measurement import Accuracy
from .statistics import Z95, Interval

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator

RESAMPLES = 2000
GENERATOR_SEED = 20_000
UNPAIRED = "which images each network has right is not known, so the noise of the test images is drawn as if unpaired"
SEEDS_ALONE = "the noise of the test images is not in this interval: their number is not known"


class SeedVerdict(str, enum.Enum):
    """What the interval of the margin says of the minimum."""

    PASS = "PASS"
    FIRE = "FIRE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class SeedMargin:
    """The mean margin of a method over its seeds, in percentage points."""

    seeds: int
    images: int | None
    margin: float
    interval: Interval
    minimum: float
    seed_sd: float
    """The standard deviation of the margin from seed to seed, as measured on these images."""
    image_sd: float | None
    """The standard deviation over images of the difference between network and control, averaged over seeds."""
    caveat: str = ""
    """What the interval leaves out, or had to assume."""

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
        """How many more seeds, or more images, would decide if the margin stayed what it is; nothing where it is decided."""
        if self.verdict is not SeedVerdict.INCONCLUSIVE:
            return ""
        distance = abs(self.margin - self.minimum)
        if distance == 0:
            return "the margin is exactly the minimum: no number of seeds or images decides"
        allowed = (distance / Z95) ** 2
        images, image_variance = self.images or 0, (self.image_sd or 0.0) ** 2
        from_images, from_seeds = image_variance / images if images else 0.0, self.seed_sd**2 / self.seeds
        ways = []
        if from_images < allowed:
            ways.append(_more(self.seeds, self.seed_sd**2 / (allowed - from_images), "seeds"))
        if images and from_seeds < allowed:
            ways.append(_more(images, image_variance / (allowed - from_seeds), "test images"))
        if not ways:
            return "neither more seeds nor more test images alone would decide"
        alone = "more seeds alone cannot decide; " if from_images >= allowed else ""
        return f"{alone}about {' or '.join(ways)} would decide"


def _more(now: int, total: float, what: str) -> str:
    """The additional number, at least one: the interval of a few seeds is not quite that of the formula."""
    whole = max(now + 1, math.ceil(total))
    return f"{whole - now:,} more {what} ({whole:,} in all)"


def seed_margin(ours: Sequence[Sequence[bool]], theirs: Sequence[Sequence[bool]], minimum: float) -> SeedMargin:
    """Bootstrap the margin: resample seeds, then images, with one set of images for all seeds of a resample.

    ``ours[s][i]`` says whether the network of seed s has image i right, ``theirs[s][i]`` whether its control has.
    """
    import numpy as np

    _check(len(ours), len(theirs))
    lengths = {len(row) for row in (*ours, *theirs)}
    if len(lengths) != 1 or 0 in lengths:
        raise AuditError(f"the seeds were evaluated on different numbers of images: {sorted(lengths)}")
    # As float64 once: a product with bytes would convert all of them again in each of the 2,000 resamples.
    differences = (np.asarray(ours, np.int8) - np.asarray(theirs, np.int8)).astype(np.float64)
    seeds, images = differences.shape
    generator = _generator()
    drawn = np.empty(RESAMPLES)
    for index in range(RESAMPLES):
        rows = np.bincount(generator.integers(0, seeds, seeds), minlength=seeds) / seeds
        columns = np.bincount(generator.integers(0, images, images), minlength=images) / images
        drawn[index] = rows @ (differences @ columns)
    per_seed = 100 * differences.mean(1)
    image_sd = float(100 * differences.mean(0).std(ddof=1)) if images > 1 else 0.0
    kind = f"bootstrap over {seeds} seeds and {images:,} images"
    return _judged(per_seed, 100 * drawn, minimum, kind, images=images, image_sd=image_sd)


def seed_margin_of_accuracies(ours: Sequence[Accuracy], theirs: Sequence[Accuracy], minimum: float) -> SeedMargin:
    """The margin from what is known of each seed: image by image, else accuracies and a number of images, else accuracies."""
    _check(len(ours), len(theirs))
    orders = {(accuracy.order, accuracy.images) for accuracy in (*ours, *theirs)}
    rows = [accuracy.hits() for accuracy in (*ours, *theirs)]
    known = [row for row in rows if row is not None]
    if len(known) == len(rows) and len(orders) == 1:
        return seed_margin(known[: len(ours)], known[len(ours) :], minimum)
    return _without_outcomes(ours, theirs, minimum)


def _without_outcomes(ours: Sequence[Accuracy], theirs: Sequence[Accuracy], minimum: float) -> SeedMargin:
    """Seeds are resampled; the noise of the images is binomial, and one draw for all seeds, who are tested on the same ones."""
    import numpy as np

    seeds = len(ours)
    a, b = (np.array([accuracy.value for accuracy in group]) for group in (ours, theirs))
    generator = _generator()
    rows = generator.integers(0, seeds, (RESAMPLES, seeds))
    mean_a, mean_b = a[rows].mean(1), b[rows].mean(1)
    # A control that was given as a number was evaluated on the same test set, as far as anyone knows.
    sizes = [(x.images, y.images or x.images) for x, y in zip(ours, theirs, strict=True)]
    if not all(x and y for x, y in sizes):
        kind, drawn = f"bootstrap over {seeds} seeds", 100 * (mean_a - mean_b)
        return _judged(100 * (a - b), drawn, minimum, kind, caveat=SEEDS_ALONE)
    n_a, n_b = min(x or 0 for x, _ in sizes), min(y or 0 for _, y in sizes)
    drawn = generator.binomial(n_a, mean_a) / n_a - generator.binomial(n_b, mean_b) / n_b
    images = min(n_a, n_b)
    variance = images * (a.mean() * (1 - a.mean()) / n_a + b.mean() * (1 - b.mean()) / n_b)
    kind = f"bootstrap over {seeds} seeds, binomial over {images:,} images, unpaired"
    image_sd = 100 * math.sqrt(variance)
    return _judged(100 * (a - b), 100 * drawn, minimum, kind, images=images, image_sd=image_sd, caveat=UNPAIRED)


def _check(ours: int, theirs: int) -> None:
    if ours < 2 or ours != theirs:
        raise AuditError(f"a margin over seeds needs two or more seeds, each with its control; got {ours} and {theirs}")


def _generator() -> Generator:
    import numpy as np

    return np.random.Generator(np.random.PCG64(GENERATOR_SEED))


def _judged(
    per_seed: ndarray,
    drawn: ndarray,
    minimum: float,
    kind: str,
    *,
    images: int | None = None,
    image_sd: float | None = None,
    caveat: str = "",
) -> SeedMargin:
    import numpy as np

    # Rounded as a single margin is: 0.38 - 0.36 is 2 pp, not a hair above.
    low, high = (round(float(bound), 9) for bound in np.quantile(drawn, [0.025, 0.975]))
    return SeedMargin(
        seeds=len(per_seed),
        images=images,
        margin=round(float(per_seed.mean()), 9),
        interval=Interval(low, high, kind),
        minimum=minimum,
        seed_sd=float(per_seed.std(ddof=1)),
        image_sd=image_sd,
        caveat=caveat,
    )
