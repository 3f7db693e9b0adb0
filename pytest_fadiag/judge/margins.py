"""The interval of an accuracy margin: of one network, and of a method over its seeds."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence

import msgspec

from .errors import AuditError
from .records import Score
from .words import plural

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
ASSUMED_IMAGES = 10_000
"""The number of test images where none is stated: that of CIFAR-10 and the MNISTs."""
MOST_SEEDS = 1_000
UNPAIRED = "per-image results are not known, so the noise of the test images is taken as unpaired"
ASSUMED = (
    f"the number of test images is not known, so {ASSUMED_IMAGES:,} are assumed, unpaired; state "
    "it as n_test in the log's config"
)


def t95(df: float) -> float:
    """The 97.5 % quantile of Student's t at any number of degrees of freedom, to 1e-7 or better.

    With a = df/2 and x = df/(df + t²) the two tails hold the incomplete beta function I_x(a, 1/2),
    here as a series. Its logarithm is convex in log x, so Newton's steps from the normal quantile
    come down to the root. From 30 degrees on Cornish and Fisher's expansion in 1/df is as accurate
    (Abramowitz and Stegun, 26.7.5).
    """
    if df >= 30:
        terms = (
            (Z95**3 + Z95) / 4,
            (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / 96,
            (3 * Z95**7 + 19 * Z95**5 + 17 * Z95**3 - 15 * Z95) / 384,
            (79 * Z95**9 + 776 * Z95**7 + 1482 * Z95**5 - 1920 * Z95**3 - 945 * Z95) / 92160,
        )
        return Z95 + sum(term / df**power for power, term in enumerate(terms, start=1))
    a = df / 2
    log_scale = math.lgamma(a + 0.5) - math.lgamma(a + 1) - math.lgamma(0.5)  # 1/(a·B(a, 1/2))
    log_x, step = -math.log1p(Z95**2 / df), math.inf
    while abs(step) > 1e-12 * abs(log_x):
        x, rest = math.exp(log_x), -math.expm1(log_x)
        series, term, index = 1.0, 1.0, 0
        while term > 1e-17 * series:  # 1 + x·(a+½)/(a+1) + x²·(a+½)(a+1½)/((a+1)(a+2)) + …
            term *= x * (a + 0.5 + index) / (a + 1 + index)
            series, index = series + term, index + 1
        log_tails = log_scale + a * log_x + math.log(rest) / 2 + math.log(series)
        step = (log_tails - math.log(0.05)) * rest * series / a
        log_x -= step
    return math.sqrt(df * math.expm1(-log_x)) if log_x > -700 else math.inf


class Interval(msgspec.Struct, frozen=True):
    """A 95 % interval of a margin in percentage points, and how it was obtained."""

    low: float
    high: float
    kind: str = ""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def margin_interval(ours: Score, theirs: Score) -> Interval | None:
    """The interval of ``ours − theirs``: paired where both are known image by image.

    ``None`` without a number of images. Paired it is Bonett and Price's, unpaired Agresti and
    Caffo's: Wald's with one image added to each count.

    >>> margin_interval(Score(0.9, 10_000), Score(0.8, 10_000)).kind
    'binomial, 10,000 images, unpaired'
    """
    if not ours.images:
        return None
    pair, n = _on_the_same_images(ours, theirs), ours.images
    if ours.parts and pair:
        differences = [one - other for one, other in zip(*pair, strict=True)]
        return Interval(*mean_interval(differences), f"{n:,} samples, paired")
    if ours.parts:
        noise = sum(_noise(score.parts or ours.parts) for score in (ours, theirs))
        margin, half = 100 * (ours.value - theirs.value), 100 * Z95 * math.sqrt(noise)
        return Interval(margin - half, margin + half, f"{n:,} samples, unpaired")
    if pair:
        one, other = (int(score.correct or "0", 16) for score in (ours, theirs))
        a, b = ((own.bit_count() + 1) / (n + 2) for own in (one & ~other, other & ~one))
        centre, variance, kind = (
            a - b,
            (a + b - (a - b) ** 2) / (n + 2),
            f"paired over {n:,} images",
        )
    else:
        sizes = n + 2, (theirs.images or n) + 2
        p, q = (
            (score.value * (size - 2) + 1) / size
            for score, size in zip((ours, theirs), sizes, strict=True)
        )
        centre, variance = p - q, p * (1 - p) / sizes[0] + q * (1 - q) / sizes[1]
        kind = f"binomial, {n:,} images, unpaired"
    return Interval(*_around(100 * centre, 100 * Z95 * math.sqrt(variance)), kind)


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of what samples or clusters contribute, in pp."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean, noise = statistics.fmean(values), _noise(values)
    half = t95(len(values) - 1) * math.sqrt(noise)
    return 100 * (mean - half), 100 * (mean + half)


def _noise(values: Sequence[float]) -> float:
    """The variance of their mean."""
    return statistics.variance(values) / len(values)


def reads_less(accuracy: float, images: int, probe: float, read: int) -> bool:
    """Whether an accuracy is below that of a probe on other images, by two standard errors.

    A negative R² has none of its own.
    """
    pairs = ((probe, read), (accuracy, images))
    variance = sum(max(value * (1 - value), 0.0) / number for value, number in pairs)
    return accuracy < probe - 2 * math.sqrt(variance)


class SeedVerdict(str, enum.Enum):
    """What the interval of the margin says about the minimum."""

    PASS = "PASS"
    FIRE = "FIRE"
    INCONCLUSIVE = "INCONCLUSIVE"


class SeedMargin(msgspec.Struct, frozen=True, kw_only=True):
    """The mean margin of a method over its seeds, in percentage points."""

    seeds: int
    images: int
    margin: float
    interval: Interval
    minimum: float
    over_seeds: float
    """v_s: the variance of the seeds' margins, divided by their number n."""
    over_images: float
    """v_i: the variance of the images' margins, divided by their number N."""
    residual: float = 0.0
    """v_e: what neither seeds nor images explain, divided by nN; a part of both others."""
    caveat: str = ""
    """What the interval leaves out, or had to assume."""

    @property
    def verdict(self) -> SeedVerdict:
        """PASS if the lower bound reaches the minimum, FIRE if the upper bound is below it."""
        if self.interval.low >= self.minimum:
            return SeedVerdict.PASS
        return SeedVerdict.FIRE if self.interval.high < self.minimum else SeedVerdict.INCONCLUSIVE

    @property
    def seed_sd(self) -> float:
        """The sample standard deviation of the margin from seed to seed."""
        return math.sqrt(self.seeds * self.over_seeds)

    @property
    def needed(self) -> str:
        """How many seeds would decide at this margin and spread; empty where it is decided."""
        if self.verdict is not SeedVerdict.INCONCLUSIVE:
            return ""
        common = max(self.over_images - self.residual, 0.0)  # seeds share this: it stays

        def decides(seeds: int) -> bool:
            share = self.seeds / seeds
            own = share * (self.over_images - common)
            spread = share * self.over_seeds, common + own, share * self.residual
            return _half_width(*spread, seeds, self.images) <= abs(self.margin - self.minimum)

        pairing = "; checkpoints, audited image by image, may need fewer" if self.caveat else ""
        for seeds in range(self.seeds + 1, MOST_SEEDS + 1):
            if decides(seeds):
                more = plural(seeds - self.seeds, "more seed")
                return f"about {more} ({seeds:,} in all){pairing}"
        return f"more than {MOST_SEEDS:,} seeds, or a larger test set{pairing}"


def seed_margin(ours: Sequence[Score], theirs: Sequence[Score], minimum: float) -> SeedMargin:
    """The mean margin of networks over their controls, paired where known image by image."""
    seeds, outcomes = len(ours), _on_the_same_images(*ours, *theirs)
    n, m = (min((s.images for s in side if s.images), default=0) for side in (ours, theirs))
    assumed = not (n or m)
    n, m = n or m or ASSUMED_IMAGES, m or n or ASSUMED_IMAGES
    images = min(n, m)
    if seeds < 2:
        raise AuditError("a margin over seeds needs two or more networks, each with a control")
    if outcomes is not None:
        margin, spread = _paired(outcomes[:seeds], outcomes[seeds:])
        kind, caveat = "images, paired", ""
    else:
        margins = [100 * (a.value - b.value) for a, b in zip(ours, theirs, strict=True)]
        p, q = (statistics.fmean(score.value for score in side) for side in (ours, theirs))
        noise = p * (1 - p) / n + q * (1 - q) / m  # the same for all seeds
        if parts := [score.parts for score in (*ours, *theirs) if score.parts]:
            noise = 2 * statistics.fmean(map(_noise, parts))
        margin = statistics.fmean(margins)
        spread = statistics.variance(margins) / seeds, 100**2 * noise, 0.0
        kind = f"{'assumed ' if assumed else ''}images, unpaired"
        caveat = ASSUMED if assumed else UNPAIRED
    half = _half_width(*spread, seeds, images)
    low, high = (margin - half, margin + half) if ours[0].parts else _around(margin, half)
    return SeedMargin(
        seeds=seeds,
        images=images,
        margin=round(margin, 9),  # 0.38 − 0.36 is 2 pp, not a hair above
        interval=Interval(
            round(low, 9), round(high, 9), f"over {seeds} seeds and {images:,} {kind}"
        ),
        minimum=minimum,
        over_seeds=spread[0],
        over_images=spread[1],
        residual=spread[2],
        caveat=caveat,
    )


def _paired(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]
) -> tuple[float, tuple[float, float, float]]:
    """Mean, v_s, v_i and v_e of D_ij, the outcome of network i at image j less its control's."""
    rows = [
        [100 * (x - y) for x, y in zip(*pair, strict=True)]
        for pair in zip(ours, theirs, strict=True)
    ]
    by_seed = [statistics.fmean(row) for row in rows]
    by_image = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    mean, seeds, images = statistics.fmean(by_seed), len(by_seed), len(by_image)
    rest = sum(
        (value - own - other + mean) ** 2
        for row, own in zip(rows, by_seed, strict=True)
        for value, other in zip(row, by_image, strict=True)
    )
    residual = rest / ((seeds - 1) * (images - 1)) / (seeds * images)
    return mean, (_noise(by_seed), _noise(by_image), residual)


def _half_width(
    over_seeds: float, over_images: float, residual: float, seeds: int, images: int
) -> float:
    """Half the width of the 95 % interval, with Satterthwaite's degrees of freedom."""
    total = max(over_seeds + over_images - residual, over_images)
    if total == 0:
        return 0.0
    by_seeds, by_images = over_seeds / total, over_images / total
    return t95(1 / (by_seeds**2 / (seeds - 1) + by_images**2 / (images - 1))) * math.sqrt(total)


def _around(centre: float, half: float) -> tuple[float, float]:
    return max(centre - half, -100.0), min(centre + half, 100.0)


def _on_the_same_images(*scores: Score) -> list[Sequence[float]] | None:
    """The outcome of each at every image; ``None`` where unknown or on other images."""
    outcomes = [own for score in scores if (own := score.outcomes) is not None]
    same = len({(score.images, score.order, score.data) for score in scores}) == 1
    return outcomes if same and len(outcomes) == len(scores) else None
