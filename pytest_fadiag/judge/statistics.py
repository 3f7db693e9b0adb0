"""The interval of an accuracy margin, paired over test images where both outcomes of each image are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .records import Accuracy

Z95 = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """A 95 % interval of a margin in percentage points, and how it was obtained."""

    low: float
    high: float
    kind: str

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def margin_interval(headline: Accuracy, control: Accuracy) -> Interval | None:
    """The interval of ``headline - control``, or ``None`` where the number of test images is unknown."""
    ours, theirs = headline.correct, control.correct
    if ours is not None and theirs is not None and headline.images and _same_images(headline, control):
        a, b = int(ours, 16), int(theirs, 16)  # as numbers, since a table asks for the interval of every row several times
        return paired_interval((a & ~b).bit_count(), (b & ~a).bit_count(), headline.images)
    if headline.images:
        return binomial_interval(headline.value, headline.images, control.value, control.images or headline.images)
    return None


def paired_interval(only_ours: int, only_theirs: int, images: int) -> Interval:
    """Bonett and Price's interval for paired proportions, from how many images only one of both has right.

    It is Wald's with one image added to each of these two numbers, which keeps the width above zero when no image tells
    both apart; at 10,000 images that changes nothing visible.
    """
    n = images + 2
    a, b = (only_ours + 1) / n, (only_theirs + 1) / n
    centre = a - b
    half = Z95 * math.sqrt((a + b - centre**2) / n)
    return _in_points(centre, half, f"paired over {images:,} images")


def _same_images(one: Accuracy, other: Accuracy) -> bool:
    return one.images == other.images and one.order == other.order and same_data(one, other)


def same_data(*accuracies: Accuracy) -> bool:
    """Whether nothing says that these are accuracies on different test data; many a digest is not known."""
    return len({accuracy.data for accuracy in accuracies if accuracy.data is not None}) <= 1


def binomial_interval(ours: float, n_ours: int, theirs: float, n_theirs: int) -> Interval:
    """Agresti and Caffo's interval for two independent proportions: Wald with one hit and one miss added to each."""
    a, b = ((p * n + 1) / (n + 2) for p, n in ((ours, n_ours), (theirs, n_theirs)))
    half = Z95 * math.sqrt(a * (1 - a) / (n_ours + 2) + b * (1 - b) / (n_theirs + 2))
    return _in_points(a - b, half, f"binomial, {n_ours:,} images, unpaired")


def at_chance(accuracy: float, classes: int, images: int | None) -> bool:
    """Whether an accuracy is within two standard errors of guessing; within one point if the number of images is unknown."""
    chance = 1 / classes
    slack = 2 * math.sqrt(chance * (1 - chance) / images) if images else 0.01
    return abs(accuracy - chance) <= slack


def _in_points(centre: float, half: float, kind: str) -> Interval:
    return Interval(100 * max(centre - half, -1.0), 100 * min(centre + half, 1.0), kind)
