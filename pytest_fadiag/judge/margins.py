"""The interval of an accuracy margin: of one network over its test images, and of a method over its seeds and their images."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import AuditError
from .records import Accuracy
from .student_t import Z95, t95
from .wording import count

ASSUMED_IMAGES = 10_000
"""The number of test images where nobody states it: that of the usual test sets, CIFAR-10's and the MNISTs'."""
MOST_SEEDS = 1_000
"""Beyond this nobody is helped by a number of seeds."""
UNPAIRED = "which images each network has right is not known, so the noise of the test images is taken as unpaired"
ASSUMED = (
    "the number of test images is not known: {images:,} were assumed for the noise of the images, taken as unpaired; state "
    "it as n_test in the log's config, or record it as images"
)
PAIRED_MAY = "checkpoints, audited image by image, may need fewer"


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a margin in percentage points, and how it was obtained."""

    low: float
    high: float
    kind: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


# --- one network -----------------------------------------------------------------------------------------------------


def margin_interval(headline: Accuracy, control: Accuracy) -> Interval | None:
    """The interval of ``headline - control``, or ``None`` where the number of test images is unknown."""
    if not headline.images:
        return None
    outcomes = _on_the_same_images(headline, control)
    if outcomes is None:
        return binomial_interval(headline.value, headline.images, control.value, control.images or headline.images)
    ours, theirs = outcomes
    return paired_interval((ours & ~theirs).bit_count(), (theirs & ~ours).bit_count(), headline.images)


def paired_interval(only_ours: int, only_theirs: int, images: int) -> Interval:
    """Bonett and Price's interval for paired proportions, from how many images only one of both has right.

    It is Wald's with one image added to each of these two numbers, which keeps the width above zero when no image tells
    both apart; at 10,000 images that changes nothing visible.
    """
    n = images + 2
    a, b = (only_ours + 1) / n, (only_theirs + 1) / n
    centre = a - b
    half = Z95 * math.sqrt((a + b - centre**2) / n)
    return _clipped(100 * (centre - half), 100 * (centre + half), f"paired over {images:,} images")


def binomial_interval(ours: float, n_ours: int, theirs: float, n_theirs: int) -> Interval:
    """Agresti and Caffo's interval for two independent proportions: Wald with one hit and one miss added to each."""
    a, b = ((p * n + 1) / (n + 2) for p, n in ((ours, n_ours), (theirs, n_theirs)))
    half = Z95 * math.sqrt(a * (1 - a) / (n_ours + 2) + b * (1 - b) / (n_theirs + 2))
    return _clipped(100 * (a - b - half), 100 * (a - b + half), f"binomial, {n_ours:,} images, unpaired")


def _clipped(low: float, high: float, kind: str) -> Interval:
    """An interval without what lies beyond ±100 percentage points, where no margin can be."""
    return Interval(max(low, -100.0), min(high, 100.0), kind)


def _on_the_same_images(*accuracies: Accuracy) -> list[int] | None:
    """Which images each has right, one bit an image; ``None`` if that is unknown, or they were evaluated on different ones."""
    outcomes = [accuracy.bits() for accuracy in accuracies]
    orders = {(accuracy.images, accuracy.order) for accuracy in accuracies}
    digests = {accuracy.data for accuracy in accuracies if accuracy.data is not None}  # older records have none
    paired = len(orders) == 1 and len(digests) <= 1 and None not in outcomes
    return [bits for bits in outcomes if bits is not None] if paired else None


# --- a method over its seeds -----------------------------------------------------------------------------------------


class SeedVerdict(str, enum.Enum):
    """What the interval of the margin says of the minimum."""

    PASS = "PASS"
    FIRE = "FIRE"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Variance:
    """The parts of the variance of a mean margin over n seeds and N images, in squared percentage points."""

    over_seeds: float
    """v_s: the variance of the margins of the seeds, divided by n."""
    over_images: float
    """v_i: the variance of the margins of the images, divided by N."""
    residual: float = 0.0
    """v_e: the variance that neither seeds nor images explain, divided by nN; it is a part of both others."""

    @property
    def total(self) -> float:
        """The variance of the mean; what is in both parts counts once."""
        return max(self.over_seeds + self.over_images - self.residual, self.over_images)

    def degrees_of_freedom(self, seeds: int, images: int) -> float | None:
        """Satterthwaite's, or ``None`` where nothing varies."""
        if self.total == 0:
            return None
        by_seeds, by_images = self.over_seeds / self.total, self.over_images / self.total
        return 1 / (by_seeds**2 / (seeds - 1) + by_images**2 / (images - 1))

    def half_width(self, seeds: int, images: int) -> float:
        """Half the width of the 95 % interval: 0 where nothing varies."""
        df = self.degrees_of_freedom(seeds, images)
        return 0.0 if df is None else t95(df) * math.sqrt(self.total)

    def with_seeds(self, share: float) -> Variance:
        """The variance to expect of 1/share times as many seeds; what all of them have in common on an image stays."""
        common = max(self.over_images - self.residual, 0.0)
        over_images = common + share * (self.over_images - common)
        return Variance(share * self.over_seeds, over_images, share * self.residual)


@dataclass(frozen=True)
class SeedMargin:
    """The mean margin of a method over its seeds, in percentage points."""

    seeds: int
    images: int | None
    margin: float
    interval: Interval
    minimum: float
    variance: Variance
    degrees_of_freedom: float | None = None
    """Those of the interval; ``None`` where nothing varies, or an earlier version resampled the interval."""
    caveat: str = ""
    """What the interval leaves out, or had to assume."""
    assumed_images: int | None = None
    """The number of images that was assumed where nobody states it."""

    @property
    def verdict(self) -> SeedVerdict:
        """PASS if the lower bound reaches the minimum, as a margin that equals it passes (d); FIRE if the upper is below it."""
        if self.interval.low >= self.minimum:
            return SeedVerdict.PASS
        return SeedVerdict.FIRE if self.interval.high < self.minimum else SeedVerdict.INCONCLUSIVE

    @property
    def seed_sd(self) -> float:
        """The sample standard deviation of the margin from seed to seed."""
        return math.sqrt(self.seeds * self.variance.over_seeds)

    def needed(self) -> str:
        """How many seeds would decide if margin and spread stayed what they are; nothing where they are decided."""
        if self.verdict is not SeedVerdict.INCONCLUSIVE:
            return ""
        images = self.images or self.assumed_images or ASSUMED_IMAGES
        distance = abs(self.margin - self.minimum)
        if distance == 0:
            return "the margin is exactly the minimum, which no number of seeds decides"

        def decides(seeds: int) -> bool:
            return self.variance.with_seeds(self.seeds / seeds).half_width(seeds, images) <= distance

        # Pairing takes away what a network and its control have in common, which is most of the noise of the images.
        pairing = f"; {PAIRED_MAY}" if self.caveat else ""
        if t95(images - 1) * math.sqrt(self.variance.with_seeds(0.0).total) > distance:
            which = f"{images:,} {'assumed ' if self.assumed_images else ''}test images"
            return f"more seeds alone cannot decide: the noise of the {which} is too large, more of them are needed{pairing}"
        # Of few images the interval may widen again with more seeds, as its degrees of freedom become those of the images.
        undecided = (seeds for seeds in range(MOST_SEEDS, self.seeds, -1) if not decides(seeds))
        least = next(undecided, self.seeds) + 1
        if least > MOST_SEEDS:
            return f"the margin is so close to the minimum that more than {MOST_SEEDS:,} seeds would be needed{pairing}"
        more = count(least - self.seeds, "more seed")
        return f"about {more} ({least:,} in all) would decide if margin and spread stay as they are{pairing}"


def seed_margin(ours: Sequence[Accuracy], theirs: Sequence[Accuracy], minimum: float) -> SeedMargin:
    """The margin of networks over their controls, seed by seed: image by image where that is known, else from accuracies."""
    if len(ours) < 2 or len(ours) != len(theirs):
        raise AuditError(
            f"a margin over seeds needs two or more seeds, each with its control; got {len(ours)} and {len(theirs)}"
        )
    outcomes = _on_the_same_images(*ours, *theirs)
    if outcomes is None:
        return _unpaired(ours, theirs, minimum)
    images = ours[0].images or 0
    margin, variance = _paired(outcomes[: len(ours)], outcomes[len(ours) :], images)
    return _judged(margin, variance, minimum, len(ours), images, f"{images:,} images, paired")


def _paired(ours: Sequence[int], theirs: Sequence[int], images: int) -> tuple[float, Variance]:
    """Mean and variance of D_ij: 1 where only the network of seed i has image j right, -1 where only its control has, else 0.

    All sums are whole numbers, so that nothing is rounded before the last division.
    """
    _check_images(images)
    seeds = len(ours)
    better = [a & ~b for a, b in zip(ours, theirs, strict=True)]
    worse = [b & ~a for a, b in zip(ours, theirs, strict=True)]
    by_seed = [plus.bit_count() - minus.bit_count() for plus, minus in zip(better, worse, strict=True)]
    total = sum(by_seed)
    squares = sum(plus.bit_count() + minus.bit_count() for plus, minus in zip(better, worse, strict=True))
    seed_squares = sum(value**2 for value in by_seed)
    # Over the images, the squares of their sums over seeds: a sum over pairs of seeds of D_ij·D_kj.
    image_squares = sum(
        (better[i] & better[k]).bit_count() + (worse[i] & worse[k]).bit_count() - 2 * (better[i] & worse[k]).bit_count()
        for i in range(seeds)
        for k in range(seeds)
    )
    cells = seeds * images
    of_seeds = seeds * seed_squares - total**2
    of_images = images * image_squares - total**2
    of_rest = cells * squares - seeds * seed_squares - images * image_squares + total**2
    to_points = 100**2 / cells**2
    return 100 * total / cells, Variance(
        to_points * of_seeds / (seeds - 1),
        to_points * of_images / (images - 1),
        to_points * of_rest / ((seeds - 1) * (images - 1)),
    )


def _unpaired(ours: Sequence[Accuracy], theirs: Sequence[Accuracy], minimum: float) -> SeedMargin:
    """The noise of the images is binomial, and does not shrink with seeds, who are tested on the same ones.

    That is wider than what the images one by one would give, as long as they are as hard for a network as for its control:
    pairing takes the common part of the noise away, and a part of each seed's own shrinks with their number. So no verdict is
    definite here that would not be there. Where the number of images is not stated, no more than 10,000 are assumed; that is
    too many for a smaller test set, which only whoever knows its size can say, so the caveat asks for it.
    """
    # A network and its control were evaluated on the same test set, as far as anyone knows.
    pairs = [(a.images or b.images, b.images or a.images) for a, b in zip(ours, theirs, strict=True)]
    numbers = [number for pair in pairs for number in pair if number]
    assumed = None if len(numbers) == 2 * len(pairs) else min([ASSUMED_IMAGES, *numbers])
    n_ours, n_theirs = (min(assumed or number or 0 for number in side) for side in zip(*pairs, strict=True))
    images = min(n_ours, n_theirs)
    _check_images(images)
    margins = [100 * (a.value - b.value) for a, b in zip(ours, theirs, strict=True)]
    p, q = (statistics.fmean(accuracy.value for accuracy in group) for group in (ours, theirs))
    variance = Variance(statistics.variance(margins) / len(margins), 100**2 * (p * (1 - p) / n_ours + q * (1 - q) / n_theirs))
    return _judged(
        statistics.fmean(margins),
        variance,
        minimum,
        len(margins),
        images,
        f"{images:,} {'assumed ' if assumed else ''}images, unpaired",
        caveat=ASSUMED.format(images=assumed) if assumed else UNPAIRED,
        assumed=bool(assumed),
    )


def _check_images(images: int) -> None:
    if images < 2:
        raise AuditError(f"a margin over seeds needs two or more test images, whose noise it counts; got {images}")


def _judged(
    margin: float,
    variance: Variance,
    minimum: float,
    seeds: int,
    images: int,
    over: str,
    *,
    caveat: str = "",
    assumed: bool = False,
) -> SeedMargin:
    half = variance.half_width(seeds, images)
    # Rounded as a single margin is: 0.38 - 0.36 is 2 pp, not a hair above.
    low, high = round(margin - half, 9), round(margin + half, 9)
    return SeedMargin(
        seeds=seeds,
        images=None if assumed else images,
        margin=round(margin, 9),
        interval=_clipped(low, high, f"over {seeds} seeds and {over}"),
        minimum=minimum,
        variance=variance,
        degrees_of_freedom=variance.degrees_of_freedom(seeds, images),
        caveat=caveat,
        assumed_images=images if assumed else None,
    )
