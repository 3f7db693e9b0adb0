"""What guessing gives."""

from __future__ import annotations

import math
from typing import NamedTuple

from .records import AuxiliaryStatistics
from .wording import fraction


class Guess(NamedTuple):
    """One way to guess: how often it is right, as a number is written and as a sentence says it."""

    chance: float
    symbol: str
    words: str

    def slack(self, images: int | None) -> float:
        """Two standard errors; one point if the number of images is unknown."""
        return 2 * math.sqrt(self.chance * (1 - self.chance) / images) if images else 0.01


def guesses(statistics: AuxiliaryStatistics) -> list[Guess]:
    """The ways to guess, as far as outputs and labels are known: a head may have outputs for classes that never occur."""
    occurring, share = statistics.label_classes, statistics.largest_label_share
    found = [
        Guess(1 / classes, f"1/{classes}", f"with {classes} classes") for classes in (occurring, statistics.classes) if classes
    ]
    if share is not None:
        found.append(
            Guess(
                share,
                f"{fraction(share)}, the share of the most frequent class",
                f"where {fraction(share)} of the images are of one class",
            )
        )
    return found


def by_outputs(statistics: AuxiliaryStatistics) -> str:
    """That chance is known by the outputs alone, where nobody counted the labels; else nothing."""
    if not statistics.classes or statistics.label_classes:
        return ""
    return f"chance is taken as 1/{statistics.classes}, by the outputs: the classes of the labels were not counted"


def at_chance(accuracy: float, statistics: AuxiliaryStatistics, images: int | None) -> Guess | None:
    """The guess that an accuracy cannot be told from."""
    return next((guess for guess in guesses(statistics) if abs(accuracy - guess.chance) <= guess.slack(images)), None)


def no_better_than_chance(accuracy: float, statistics: AuxiliaryStatistics, images: int | None) -> Guess | None:
    """The best guess, where an accuracy is not above it."""
    best = max(guesses(statistics), key=lambda guess: guess.chance, default=None)
    return best if best is not None and accuracy <= best.chance + best.slack(images) else None
