"""The mean margin of a method over its seeds, with its interval."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from .errors import AuditError
from .margins import (
    Interval,
    around,
    balanced_score,
    noise_of_mean,
    on_the_same_images,
    t95,
)
from .records import Score
from .words import plural

ASSUMED_IMAGES = 10_000
"""The number of test images where none is stated: that of CIFAR-10 and the MNISTs."""
MOST_SEEDS = 1_000
ROUNDING = 1e-12
"""A variance below this, in pp², is what rounding leaves of none."""
UNPAIRED = "per-image results are not known, so the noise of the test images is taken as unpaired"
ASSUMED = (
    f"the number of test images is not known, so {ASSUMED_IMAGES:,} are assumed, unpaired; state "
    "it as n_test in the log's config"
)


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
    if on_the_same_images(*networks, *controls) is not None:
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
        low, high = around(margin, half)
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
        noise = 2 * statistics.fmean(map(noise_of_mean, parts))
    return statistics.fmean(margins), _Spread(noise_of_mean(margins), 100**2 * noise, 0.0)


def _balanced(networks: Sequence[Score], controls: Sequence[Score]) -> tuple[float, _Spread]:
    """The same of class-balanced accuracies, by the mean noise of networks and of controls."""
    pairs = list(zip(map(balanced_score, networks), map(balanced_score, controls), strict=True))
    margins = [100 * (network[0] - control[0]) for network, control in pairs]
    noise = statistics.fmean(network[1] + control[1] for network, control in pairs)
    return statistics.fmean(margins), _Spread(noise_of_mean(margins), 100**2 * noise, 0.0)


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
    spread = _Spread(noise_of_mean(margins), over_images / classes**2, residual / classes**2)
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
    return by_seed, _Spread(0.0, noise_of_mean(by_image), residual)
