"""The margin of a method over its seeds: paired by seed and by image where that is known, with a three-valued verdict."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import AuditError
from .records import Accuracy
from .spread import Present, Spread
from .statistics import Interval, same_data

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import Generator

RESAMPLES = 2000
GENERATOR_SEED = 20_000
ASSUMED_IMAGES = 10_000
"""The number of test images where nobody states it: that of the usual test sets, CIFAR-10's and the MNISTs'."""
UNPAIRED = "which images each network has right is not known, so the noise of the test images is drawn as if unpaired"
ASSUMED = (
    "the number of test images is not known: {images:,} were assumed for the noise of the images, drawn as if unpaired; state "
    "it as n_test in the log's config, or record it as images"
)
PAIRED_MAY = "checkpoints, audited image by image, may decide with fewer"
FEW_SEEDS = "with few seeds a percentile bootstrap is too narrow, since it sees only the seeds that there are"


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
    seed_part: float | None = None
    """The standard deviation from seed to seed without what the noise of the images adds to it."""
    common_part: float | None = None
    """The standard deviation from image to image that all seeds have in common."""
    specific_part: float | None = None
    """The standard deviation from image to image that each seed has of its own."""
    assumed_images: int | None = None
    """The number of images that was assumed where nobody states it."""

    @property
    def verdict(self) -> SeedVerdict:
        """PASS if the lower bound reaches the minimum, as a margin that equals it passes (d); FIRE if the upper is below it."""
        if self.interval.low >= self.minimum:
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
        # A margin that was kept by an earlier version has no parts: all of its spread over seeds counts as theirs.
        seed, common = (
            whole if part is None else part
            for part, whole in ((self.seed_part, self.seed_sd), (self.common_part, self.image_sd or 0.0))
        )
        images = self.images or self.assumed_images
        above = self.margin > self.minimum
        # Pairing takes away what a network and its control have in common, which is most of the noise of the images.
        pairing = f"; {PAIRED_MAY}" if self.caveat else ""
        said = Present(
            spread=Spread(seed, common, self.specific_part or 0.0),
            seeds=self.seeds,
            images=images or 0,
            distance=abs(self.margin - self.minimum),
            half=self.margin - self.interval.low if above else self.interval.high - self.margin,
            assumed=not self.images,
        ).needed()
        return f"{said}{pairing}"


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
    return _judged(per_seed, 100 * drawn, minimum, kind, images=images, image_sd=image_sd, spread=Spread.of(differences))


def seed_margin_of_accuracies(ours: Sequence[Accuracy], theirs: Sequence[Accuracy], minimum: float) -> SeedMargin:
    """The margin from what is known of each seed: image by image, else accuracies and a number of images, else accuracies."""
    _check(len(ours), len(theirs))
    everyone = (*ours, *theirs)
    orders = {(accuracy.order, accuracy.images) for accuracy in everyone}
    rows = [accuracy.hits() for accuracy in everyone]
    known = [row for row in rows if row is not None]
    if len(known) == len(rows) and len(orders) == 1 and same_data(*everyone):
        return seed_margin(known[: len(ours)], known[len(ours) :], minimum)
    return _without_outcomes(ours, theirs, minimum)


def _without_outcomes(ours: Sequence[Accuracy], theirs: Sequence[Accuracy], minimum: float) -> SeedMargin:
    """Seeds are resampled; the noise of the images is binomial, and one draw for all seeds, who are tested on the same ones.

    That is wider than what the images one by one would give, as long as they are as hard for a network as for its control:
    pairing takes the common part of the noise away, and a part of each seed's own shrinks with their number. So no verdict is
    definite here that would not be there. Where the number of images is not stated, no more than 10,000 are assumed; that is
    too many for a smaller test set, which only whoever knows its size can say, so the caveat asks for it.
    """
    import numpy as np

    seeds = len(ours)
    a, b = (np.array([accuracy.value for accuracy in group]) for group in (ours, theirs))
    generator = _generator()
    rows = generator.integers(0, seeds, (RESAMPLES, seeds))
    mean_a, mean_b = a[rows].mean(1), b[rows].mean(1)
    # A network and its control were evaluated on the same test set, as far as anyone knows.
    stated = [(x.images or y.images, y.images or x.images) for x, y in zip(ours, theirs, strict=True)]
    numbers = [number for pair in stated for number in pair if number]
    assumed = None if len(numbers) == 2 * seeds else min([ASSUMED_IMAGES, *numbers])
    n_a, n_b = (min(assumed or number or 0 for number in side) for side in zip(*stated, strict=True))
    drawn = generator.binomial(n_a, mean_a) / n_a - generator.binomial(n_b, mean_b) / n_b
    images = min(n_a, n_b)
    variance = images * (a.mean() * (1 - a.mean()) / n_a + b.mean() * (1 - b.mean()) / n_b)
    how = "assumed and unpaired" if assumed else "unpaired"
    kind = f"bootstrap over {seeds} seeds, binomial over {images:,} images, {how}"
    image_sd = 100 * math.sqrt(variance)
    per_seed = 100 * (a - b)
    return _judged(
        per_seed,
        100 * drawn,
        minimum,
        kind,
        images=None if assumed else images,
        assumed_images=assumed,
        image_sd=image_sd,
        spread=Spread(float(per_seed.std(ddof=1)), image_sd, 0.0),
        caveat=ASSUMED.format(images=assumed) if assumed else UNPAIRED,
    )


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
    images: int | None,
    image_sd: float,
    spread: Spread,
    caveat: str = "",
    assumed_images: int | None = None,
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
        seed_part=spread.seed,
        common_part=spread.common,
        specific_part=spread.specific,
        assumed_images=assumed_images,
    )
