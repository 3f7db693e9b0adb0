"""The interval of an accuracy margin: of one network, and of a method over its seeds."""

from __future__ import annotations

import enum
import math
import operator
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from .errors import AuditError
from .records import Score
from .words import plural

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
ASSUMED_IMAGES = 10_000
"""The number of test images where none is stated: that of CIFAR-10 and the MNISTs."""
MOST_SEEDS = 1_000
MOST_IMAGES = 1_000_000
ROUNDING = 1e-12
"""A variance below this, in pp², is what rounding leaves of none."""
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
    log_x = -math.log1p(Z95**2 / df)
    step = math.inf
    while abs(step) > 1e-12 * abs(log_x):
        x = math.exp(log_x)
        complement = -math.expm1(log_x)
        series = term = 1.0
        index = 0
        while term > 1e-17 * series:  # 1 + x·(a+½)/(a+1) + x²·(a+½)(a+1½)/((a+1)(a+2)) + …
            term *= x * (a + 0.5 + index) / (a + 1 + index)
            series += term
            index += 1
        log_tails = log_scale + a * log_x + math.log(complement) / 2 + math.log(series)
        step = (log_tails - math.log(0.05)) * complement * series / a
        log_x -= step
    if log_x <= -700:
        return math.inf
    return math.sqrt(df * math.expm1(-log_x))


class Interval(msgspec.Struct, frozen=True):
    """A 95 % interval of a margin in percentage points, and how it was obtained."""

    low: float
    high: float
    kind: str = ""

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Margin(NamedTuple):
    """How far one network is above its control, in percentage points."""

    pp: float
    """Of class-balanced accuracies where both are known by class, else of plain ones."""
    interval: Interval | None
    """``None`` without a number of images."""
    skewed: bool = False
    """Whether classes differ in size, and the accuracy of the control is a plain one."""


def margin_over(network: Score, control: Score) -> Margin:
    """``network − control``: paired and stratified by class where outcomes are known.

    Of a plain accuracy it is unpaired, with Agresti and Caffo's interval: Wald's with one image
    added to each count.

    >>> margin_over(Score(0.9, 10_000), Score(0.8, 10_000)).interval.kind
    'binomial, 10,000 images, unpaired'
    """
    outcomes = _on_the_same_images(network, control)
    plain = 100 * (network.value - control.value)
    n = network.images
    if not n:
        return _margin(plain, None)
    if network.parts:
        return _margin(plain, _interval_of_parts(network, control, outcomes))
    stratified = ", stratified by class" if network.class_counts else ""
    if outcomes:
        mean, noise = balanced_mean(_differences(network, control))
        kind = f"paired over {n:,} images{stratified}"
        return _margin(100 * mean, _interval(mean, noise, kind))
    if network.class_counts and control.class_counts:
        mean, noise = _balanced_score(network)
        control_mean, control_noise = _balanced_score(control)
        mean -= control_mean
        kind = f"{n:,} images, unpaired{stratified}"
        return _margin(100 * mean, _interval(mean, noise + control_noise, kind))
    m = control.images or n
    p = (network.value * n + 1) / (n + 2)
    q = (control.value * m + 1) / (m + 2)
    noise = p * (1 - p) / (n + 2) + q * (1 - q) / (m + 2)
    interval = _interval(p - q, noise, f"binomial, {n:,} images, unpaired")
    return _margin(plain, interval, skewed=network.is_skewed)


def _margin(value: float, interval: Interval | None, *, skewed: bool = False) -> Margin:
    return Margin(round(value, 9), interval, skewed)  # 0.369 − 0.349 is 2 pp, not a hair below


def _interval(mean: float, noise: float, kind: str) -> Interval:
    return Interval(*_around(100 * mean, 100 * Z95 * math.sqrt(noise)), kind)


def _differences(network: Score, control: Score) -> Iterator[Moments]:
    """What each class holds of network − control, image by image."""
    for hits, control_hits in zip(network.by_class, control.by_class, strict=True):
        differing = sum(map(operator.ne, hits, control_hits))
        yield Moments(len(hits), sum(hits) - sum(control_hits), differing)


def _balanced_score(score: Score) -> tuple[float, float]:
    """The class-balanced accuracy and its variance, from 1 for a hit and −1 for none."""
    classes = [Moments(len(hits), 2 * sum(hits) - len(hits), len(hits)) for hits in score.by_class]
    mean, noise = balanced_mean(classes)
    return (mean + 1) / 2, noise / 4


class Moments(NamedTuple):
    """What numbers between −1 and 1 of one class add up to."""

    images: int
    total: float
    squares: float


def balanced_mean(classes: Iterable[Moments]) -> tuple[float, float]:
    """The mean of the classes' means, and its variance, stratified by class.

    As Bonett and Price do for one class, two images are added that cancel out, a part of them to
    each class: without them a class of which all images agree would have no variance.
    """
    classes = list(classes)
    added = 2 / len(classes)
    mean = 0.0
    noise = 0.0
    for images, total, squares in classes:
        number = images + added
        mean += total / images / len(classes)
        spread = (squares + added) / number - (total / number) ** 2
        noise += spread / (number - 1) / len(classes) ** 2
    return mean, noise


def balanced_interval(classes: Iterable[Moments]) -> tuple[float, float]:
    """The 95 % interval of the mean of the classes' means, in pp."""
    mean, noise = balanced_mean(classes)
    return _around(100 * mean, 100 * Z95 * math.sqrt(noise))


def images_needed(margin: Margin, minimum: float, images: int) -> str:
    """How many test images would decide at this margin: «about 24,000»."""
    assert margin.interval is not None
    half = (margin.interval.high - margin.interval.low) / 2
    away = minimum - margin.pp
    if margin.pp >= minimum:
        away = margin.pp - min(minimum, 0.0)
    if half > math.sqrt(MOST_IMAGES / images) * away:
        return f"more than {MOST_IMAGES:,}"
    number = images * (half / away) ** 2
    unit = 10 ** max(len(f"{number:.0f}") - 2, 0)
    return f"about {math.ceil(number / unit) * unit:,}"


def _interval_of_parts(
    network: Score, control: Score, outcomes: Sequence[Sequence[float]] | None
) -> Interval:
    """The interval of a margin to which each sample contributes any number, as to an R²."""
    samples = f"{network.images:,} samples"
    if outcomes:
        differences = [a - b for a, b in zip(*outcomes, strict=True)]
        return Interval(*mean_interval(differences), f"{samples}, paired")
    noise = _noise(network.parts) + _noise(control.parts or network.parts)
    margin = 100 * (network.value - control.value)
    half = 100 * Z95 * math.sqrt(noise)
    return Interval(margin - half, margin + half, f"{samples}, unpaired")


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of what samples or clusters contribute, in pp."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean = statistics.fmean(values)
    half = t95(len(values) - 1) * math.sqrt(_noise(values))
    return 100 * (mean - half), 100 * (mean + half)


def _noise(values: Sequence[float]) -> float:
    """The variance of their mean."""
    return statistics.variance(values) / len(values)


def reads_less(accuracy: float, images: int, probe: float, read: int) -> bool:
    """Whether an accuracy is below that of a probe on other images, by two standard errors.

    A negative R² has none of its own.
    """
    probe_variance = max(probe * (1 - probe), 0.0) / read
    variance = probe_variance + max(accuracy * (1 - accuracy), 0.0) / images
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
    skewed: bool = False
    """Whether classes differ in size, and the accuracies of controls are plain ones."""

    @property
    def verdict(self) -> SeedVerdict:
        """PASS if the lower bound reaches the minimum, FIRE if the upper bound is below it."""
        if self.skewed:
            return SeedVerdict.INCONCLUSIVE
        if self.interval.low >= self.minimum:
            return SeedVerdict.PASS
        if self.interval.high < self.minimum:
            return SeedVerdict.FIRE
        return SeedVerdict.INCONCLUSIVE

    @property
    def seed_sd(self) -> float:
        """The sample standard deviation of the margin from seed to seed."""
        return math.sqrt(self.seeds * self.over_seeds)

    @property
    def needed(self) -> str:
        """How many seeds would decide at this margin and spread; empty where it is decided."""
        if self.verdict is not SeedVerdict.INCONCLUSIVE:
            return ""
        if self.skewed:
            return "the controls themselves and no numbers, since classes differ in size"
        pairing = "; checkpoints, audited image by image, may need fewer" if self.caveat else ""
        for seeds in range(self.seeds + 1, MOST_SEEDS + 1):
            if self._decides_with(seeds):
                more = plural(seeds - self.seeds, "more seed")
                return f"about {more} ({seeds:,} in all){pairing}"
        return f"more than {MOST_SEEDS:,} seeds, or a larger test set{pairing}"

    def _decides_with(self, seeds: int) -> bool:
        """Whether so many seeds decide: images of one test set stay common to all of them."""
        share = self.seeds / seeds
        common = max(self.over_images - self.residual, 0.0)
        over_images = common + share * (self.over_images - common)
        spread = _Spread(share * self.over_seeds, over_images, share * self.residual)
        return spread.half_width(seeds, self.images) <= abs(self.margin - self.minimum)


class _Spread(NamedTuple):
    """What a mean margin varies by: v_s, v_i and v_e of :class:`SeedMargin`."""

    over_seeds: float
    over_images: float
    residual: float

    def half_width(self, seeds: int, images: int) -> float:
        """Half the width of the 95 % interval, with Satterthwaite's degrees of freedom."""
        total = max(self.over_seeds + self.over_images - self.residual, self.over_images)
        if total < ROUNDING:
            return 0.0
        by_seeds = self.over_seeds / total
        by_images = self.over_images / total
        df = 1 / (by_seeds**2 / (seeds - 1) + by_images**2 / (images - 1))
        return t95(df) * math.sqrt(total)


def seed_margin(networks: Sequence[Score], controls: Sequence[Score], minimum: float) -> SeedMargin:
    """The mean margin of networks over their controls, paired where known image by image."""
    seeds = len(networks)
    if seeds < 2:
        raise AuditError("a margin over seeds needs two or more networks, each with a control")
    network_images = _fewest_images(networks)
    control_images = _fewest_images(controls)
    n = network_images or control_images or ASSUMED_IMAGES
    m = control_images or n
    are_known_by_class = all(score.class_counts for score in (*networks, *controls))
    stratified = ", stratified by class" if are_known_by_class else ""
    if _on_the_same_images(*networks, *controls) is not None:
        margin, spread = _paired(networks, controls)
        kind = f"images, paired{stratified}"
        caveat = ""
    elif are_known_by_class:
        margin, spread = _balanced(networks, controls)
        kind = f"images, unpaired{stratified}"
        caveat = UNPAIRED
    else:
        margin, spread = _unpaired(networks, controls, n, m)
        kind = "images, unpaired"
        caveat = UNPAIRED
        if not network_images and not control_images:
            kind = f"assumed {kind}"
            caveat = ASSUMED
    images = min(n, m)
    half = spread.half_width(seeds, images)
    low, high = margin - half, margin + half
    if not networks[0].parts:
        low, high = _around(margin, half)
    kind = f"over {seeds} seeds and {images:,} {kind}"
    return SeedMargin(
        seeds=seeds,
        images=images,
        margin=round(margin, 9),  # 0.38 − 0.36 is 2 pp, not a hair above
        interval=Interval(round(low, 9), round(high, 9), kind),
        minimum=minimum,
        over_seeds=spread.over_seeds,
        over_images=spread.over_images,
        residual=spread.residual,
        caveat=caveat,
        skewed=not are_known_by_class and any(score.is_skewed for score in networks),
    )


def _fewest_images(scores: Sequence[Score]) -> int:
    """The smallest number of images that is known; 0 where none is."""
    return min((score.images for score in scores if score.images), default=0)


def _unpaired(
    networks: Sequence[Score], controls: Sequence[Score], n: int, m: int
) -> tuple[float, _Spread]:
    """Mean, v_s and v_i of margins on n images of the networks and m of the controls."""
    margins = [100 * (a.value - b.value) for a, b in zip(networks, controls, strict=True)]
    p = statistics.fmean(score.value for score in networks)
    q = statistics.fmean(score.value for score in controls)
    noise = p * (1 - p) / n + q * (1 - q) / m  # the same for all seeds
    parts = [score.parts for score in (*networks, *controls) if score.parts]
    if parts:
        noise = 2 * statistics.fmean(map(_noise, parts))
    return statistics.fmean(margins), _Spread(_noise(margins), 100**2 * noise, 0.0)


def _balanced(networks: Sequence[Score], controls: Sequence[Score]) -> tuple[float, _Spread]:
    """The same of class-balanced accuracies, by the mean noise of networks and of controls."""
    pairs = list(zip(map(_balanced_score, networks), map(_balanced_score, controls), strict=True))
    margins = [100 * (network[0] - control[0]) for network, control in pairs]
    noise = statistics.fmean(network[1] + control[1] for network, control in pairs)
    return statistics.fmean(margins), _Spread(_noise(margins), 100**2 * noise, 0.0)


def _paired(networks: Sequence[Score], controls: Sequence[Score]) -> tuple[float, _Spread]:
    """Mean, v_s, v_i and v_e of D_ij, the outcome of network i at image j less its control's.

    Classes count equally: the variances of images and residuals are taken within each class.
    """
    over_images = 0.0
    residual = 0.0
    means = []
    differences = [_rows(*pair) for pair in zip(networks, controls, strict=True)]
    for rows in zip(*differences, strict=True):
        by_seed, spread = _of_one_class(rows)
        means.append(by_seed)
        over_images += spread.over_images
        residual += spread.residual
    classes = len(means)
    margins = [statistics.fmean(by_class) for by_class in zip(*means, strict=True)]
    spread = _Spread(_noise(margins), over_images / classes**2, residual / classes**2)
    return statistics.fmean(margins), spread


def _rows(network: Score, control: Score) -> list[list[float]]:
    """What each image of each class adds to the margin, in pp."""
    rows = []
    for values, control_values in zip(network.by_class, control.by_class, strict=True):
        rows.append([100 * (a - b) for a, b in zip(values, control_values, strict=True)])
    return rows


def _of_one_class(rows: Sequence[Sequence[float]]) -> tuple[list[float], _Spread]:
    """The margin of each seed, and v_i and v_e, of the images of one class."""
    by_seed = [statistics.fmean(row) for row in rows]
    by_image = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    mean = statistics.fmean(by_seed)
    seeds = len(by_seed)
    images = len(by_image)
    if images == 1:  # tells nothing of its class's spread, which is taken as the largest
        return by_seed, _Spread(0.0, 100.0**2, 0.0)
    unexplained = sum(
        (value - seed_mean - image_mean + mean) ** 2
        for row, seed_mean in zip(rows, by_seed, strict=True)
        for value, image_mean in zip(row, by_image, strict=True)
    )
    residual = unexplained / ((seeds - 1) * (images - 1)) / (seeds * images)
    return by_seed, _Spread(0.0, _noise(by_image), residual)


def _around(centre: float, half: float) -> tuple[float, float]:
    return max(centre - half, -100.0), min(centre + half, 100.0)


def _on_the_same_images(*scores: Score) -> list[Sequence[float]] | None:
    """The outcome of each at every image; ``None`` where unknown or on other images."""
    tests = {(score.images, score.order, score.data, score.class_counts) for score in scores}
    if len(tests) != 1:
        return None
    outcomes = []
    for score in scores:
        by_image = score.outcomes
        if by_image is None:
            return None
        outcomes.append(by_image)
    return outcomes
