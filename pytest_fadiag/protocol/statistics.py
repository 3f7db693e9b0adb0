"""The interval of an accuracy margin, paired over test images where both outcomes of each image are known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .measurement import Accuracy

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
    ours, theirs = headline.hits(), control.hits()
    if ours is not None and theirs is not None and len(ours) == len(theirs) and headline.order == control.order:
        return paired_interval(ours, theirs)
    if headline.images:
        return binomial_interval(headline.value, headline.images, control.value, control.images or headline.images)
    return None


def paired_interval(ours: list[bool], theirs: list[bool]) -> Interval:
    """Bonett and Price's interval for paired proportions: Wald with one image added to each discordant cell.

    The added images keep the width above zero when no image is discordant; at 10,000 images they change nothing visible.
    """
    n = len(ours) + 2
    only_ours = (sum(a and not b for a, b in zip(ours, theirs, strict=True)) + 1) / n
    only_theirs = (sum(b and not a for a, b in zip(ours, theirs, strict=True)) + 1) / n
    centre = only_ours - only_theirs
    half = Z95 * math.sqrt((only_ours + only_theirs - centre**2) / n)
    return _in_points(centre, half, f"paired over {len(ours):,} images")


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
