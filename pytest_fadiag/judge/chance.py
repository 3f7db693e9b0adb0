"""What guessing gives."""

from __future__ import annotations

import math


def at_chance(accuracy: float, classes: int, images: int | None) -> bool:
    """Whether an accuracy is within two standard errors of guessing; within one point if the number of images is unknown."""
    return abs(accuracy - 1 / classes) <= _slack(classes, images)


def no_better_than_chance(accuracy: float, classes: int, images: int | None) -> bool:
    """Whether an accuracy is at chance, or below it."""
    return accuracy <= 1 / classes + _slack(classes, images)


def _slack(classes: int, images: int | None) -> float:
    chance = 1 / classes
    return 2 * math.sqrt(chance * (1 - chance) / images) if images else 0.01
