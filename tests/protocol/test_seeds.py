"""The margin over seeds, against an independent bootstrap and closed forms."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from pytest_fadiag import Accuracy, AuditError
from pytest_fadiag.protocol.seeds import SEEDS_ALONE, UNPAIRED, SeedVerdict, seed_margin, seed_margin_of_accuracies


def outcomes(seeds: int, images: int, ours: float, theirs: float, seed: int = 0) -> tuple[list[list[bool]], list[list[bool]]]:
    """Networks and controls that share the difficulty of their images, as real ones do."""
    generator = np.random.default_rng(seed)
    difficulty = generator.random(images)
    pairs = []
    for accuracy in (ours, theirs):
        noise = generator.normal(0, 0.15, (seeds, images))
        scores = difficulty + noise
        pairs.append((scores < np.quantile(scores, accuracy, axis=1, keepdims=True)).tolist())
    return pairs[0], pairs[1]


def plain_bootstrap(ours: list[list[bool]], theirs: list[list[bool]], resamples: int = 4000) -> tuple[float, float]:
    """Index by index, with Python's own loop over what was drawn."""
    generator = np.random.default_rng(99)
    a, b = np.array(ours, float), np.array(theirs, float)
    margins = []
    for _ in range(resamples):
        seeds = generator.choice(len(a), len(a))
        images = generator.choice(a.shape[1], a.shape[1])
        margins.append(100 * (a[seeds][:, images].mean() - b[seeds][:, images].mean()))
    return float(np.percentile(margins, 2.5)), float(np.percentile(margins, 97.5))


def test_the_interval_agrees_with_an_independent_bootstrap() -> None:
    ours, theirs = outcomes(4, 2000, 0.40, 0.37)
    judged = seed_margin(ours, theirs, 2.0)
    low, high = plain_bootstrap(ours, theirs)
    assert judged.margin == pytest.approx(3.0, abs=0.1)
    assert (judged.interval.low, judged.interval.high) == pytest.approx((low, high), abs=0.12)


def test_it_is_the_same_every_time() -> None:
    ours, theirs = outcomes(3, 500, 0.4, 0.35)
    assert seed_margin(ours, theirs, 2.0) == seed_margin(ours, theirs, 2.0)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.45, SeedVerdict.PASS), (0.30, SeedVerdict.FIRE), (0.37, SeedVerdict.INCONCLUSIVE)]
)
def test_the_verdict_has_three_values(ours: float, verdict: SeedVerdict) -> None:
    assert seed_margin(*outcomes(3, 4000, ours, 0.35), 2.0).verdict is verdict


def test_what_would_decide_is_said() -> None:
    judged = seed_margin(*outcomes(3, 1000, 0.375, 0.35), 2.0)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert re.fullmatch(
        r"more seeds alone cannot decide; about ([\d,]+) more test images \([\d,]+ in all\) would decide", judged.needed()
    )
    three = seed_margin(
        [[True] * 900 + [False] * 100, [True] * 360 + [False] * 640, [True] * 700 + [False] * 300],
        [[True] * 350 + [False] * 650] * 3,
        2.0,
    )
    assert three.verdict is SeedVerdict.INCONCLUSIVE
    more, total = map(int, re.fullmatch(r"about (\d+) more seeds \((\d+) in all\).* would decide", three.needed()).groups())
    assert (more, three.least_p) == (total - 3, 0.125)
    assert seed_margin(*outcomes(3, 4000, 0.45, 0.35), 2.0).needed() == "", "nothing more is needed"


def test_the_number_of_seeds_that_is_said_to_decide_decides() -> None:
    """The interval of the formula, 1.96 standard errors, clears the minimum with that many seeds and not with one fewer."""
    spread = seed_margin_of_accuracies([Accuracy(0.41), Accuracy(0.38), Accuracy(0.40)], [Accuracy(0.36)] * 3, 2.0)
    assert spread.interval.low == 2.0, "0.38 - 0.36 is exactly the minimum, which it does not clear"
    assert spread.verdict is SeedVerdict.INCONCLUSIVE
    total = int(re.search(r"\((\d+) in all\)", spread.needed())[1])
    distance = spread.margin - 2.0
    assert 1.96 * spread.seed_sd / total**0.5 <= distance < 1.96 * spread.seed_sd / (total - 1) ** 0.5


# --- accuracies alone ------------------------------------------------------------------------------------------------


def test_outcomes_on_the_same_images_are_paired() -> None:
    ours, theirs = outcomes(3, 800, 0.4, 0.35)
    packed = [[Accuracy.of(row, "order") for row in rows] for rows in (ours, theirs)]
    assert seed_margin_of_accuracies(*packed, 2.0) == seed_margin(ours, theirs, 2.0)
    assert not seed_margin(ours, theirs, 2.0).caveat
    other = [*packed[1][:2], Accuracy.of(theirs[2], "another order")]
    assert seed_margin_of_accuracies(packed[0], other, 2.0).caveat == UNPAIRED


def test_without_outcomes_the_noise_of_the_images_is_binomial_and_shared_by_the_seeds() -> None:
    """Seeds that agree leave the images' noise alone, whose standard error has a closed form."""
    judged = seed_margin_of_accuracies([Accuracy(0.363, 10_000)] * 3, [Accuracy(0.349)] * 3, 2.0)
    error = 100 * ((0.363 * 0.637 + 0.349 * 0.651) / 10_000) ** 0.5
    assert judged.interval.low == pytest.approx(1.4 - 1.96 * error, abs=0.08)
    assert judged.interval.high == pytest.approx(1.4 + 1.96 * error, abs=0.08)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert "10,000 images, unpaired" in judged.interval.kind
    assert judged.images == 10_000
    assert judged.needed().startswith("more seeds alone cannot decide; about ")


def test_without_the_number_of_images_only_seeds_are_resampled_and_a_caveat_says_so() -> None:
    ours, theirs = [Accuracy(0.36), Accuracy(0.37), Accuracy(0.35, 10_000)], [Accuracy(0.349)] * 3
    judged = seed_margin_of_accuracies(ours, theirs, 2.0)
    assert (judged.interval.low, judged.interval.high) == pytest.approx((0.1, 2.1), abs=0.4)
    assert (judged.caveat, judged.images, judged.interval.kind) == (SEEDS_ALONE, None, "bootstrap over 3 seeds")
    assert "images" not in judged.needed()
    with pytest.raises(AuditError, match="two or more seeds"):
        seed_margin_of_accuracies(ours[:1], theirs[:1], 2.0)


def test_ten_seeds_on_ten_thousand_images_take_well_under_a_second() -> None:
    ours, theirs = outcomes(10, 10_000, 0.40, 0.37)
    start = time.process_time()
    seed_margin(ours, theirs, 2.0)
    assert time.process_time() - start < 1.0


def test_seeds_need_controls_and_the_same_images() -> None:
    with pytest.raises(AuditError, match="two or more seeds"):
        seed_margin([[True]], [[True]], 2.0)
    with pytest.raises(AuditError, match="different numbers of images"):
        seed_margin([[True], [True, False]], [[True], [True, False]], 2.0)
