"""How far a network is above its control, with the interval."""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from .records import Score

Z95 = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""
MOST_IMAGES = 1_000_000


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
    outcomes = on_the_same_images(network, control)
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
        mean, noise = balanced_score(network)
        control_mean, control_noise = balanced_score(control)
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
    return Interval(*around(100 * mean, 100 * Z95 * math.sqrt(noise)), kind)


def _differences(network: Score, control: Score) -> Iterator[Moments]:
    """What each class holds of network − control, image by image."""
    for hits, control_hits in zip(network.by_class, control.by_class, strict=True):
        differing = sum(map(operator.ne, hits, control_hits))
        yield Moments(len(hits), sum(hits) - sum(control_hits), differing)


def balanced_score(score: Score) -> tuple[float, float]:
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
    return around(100 * mean, 100 * Z95 * math.sqrt(noise))


def images_needed(images: int, half: float, away: float) -> int:
    """How many test images narrow half of an interval to its distance from what it leaves.

    To two digits; 0 for more than a million.
    """
    if not half <= math.sqrt(MOST_IMAGES / images) * away:
        return 0
    number = images * (half / away) ** 2
    unit = 10 ** max(len(f"{number:.0f}") - 2, 0)
    return int(math.ceil(round(number / unit, 6)) * unit)


def _interval_of_parts(
    network: Score, control: Score, outcomes: Sequence[Sequence[float]] | None
) -> Interval:
    """The interval of a margin to which each sample contributes any number, as to an R²."""
    samples = f"{network.images:,} samples"
    if outcomes:
        differences = [a - b for a, b in zip(*outcomes, strict=True)]
        return Interval(*mean_interval(differences), f"{samples}, paired")
    noise = noise_of_mean(network.parts) + noise_of_mean(control.parts or network.parts)
    margin = 100 * (network.value - control.value)
    half = 100 * Z95 * math.sqrt(noise)
    return Interval(margin - half, margin + half, f"{samples}, unpaired")


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of what samples or clusters contribute, in pp."""
    if len(values) < 2:
        return -math.inf, math.inf
    mean = statistics.fmean(values)
    half = t95(len(values) - 1) * math.sqrt(noise_of_mean(values))
    return 100 * (mean - half), 100 * (mean + half)


def noise_of_mean(values: Sequence[float]) -> float:
    """The variance of their mean."""
    return statistics.variance(values) / len(values)


def reads_less(accuracy: float, images: int, probe: float, read: int) -> bool:
    """Whether an accuracy is below that of a probe on other images, by two standard errors.

    A negative R² has none of its own.
    """
    probe_variance = max(probe * (1 - probe), 0.0) / read
    variance = probe_variance + max(accuracy * (1 - accuracy), 0.0) / images
    return accuracy < probe - 2 * math.sqrt(variance)


def around(centre: float, half: float) -> tuple[float, float]:
    """The interval of a margin, which is within 100 pp."""
    return max(centre - half, -100.0), min(centre + half, 100.0)


def on_the_same_images(*scores: Score) -> list[Sequence[float]] | None:
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
