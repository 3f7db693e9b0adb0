"""Margins and their intervals, against brute force, published tables and simulation."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import numpy as np
import pytest
from builders import exploded, healthy, report, seed_margin
from hypothesis import given
from hypothesis import strategies as st

from pytest_fadiag.judge.control import Control
from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.judge.margins import (
    images_needed,
    margin_over,
    reads_less,
    t95,
)
from pytest_fadiag.judge.records import Score
from pytest_fadiag.judge.report import Report
from pytest_fadiag.judge.seed_margins import SeedVerdict
from pytest_fadiag.judge.seed_margins import seed_margin as margin_of
from pytest_fadiag.judge.seeds import SeedReport


@pytest.mark.parametrize(
    ("df", "t"),
    [
        (1, 12.706204736),
        (2, 4.302652730),
        (3, 3.182446305),
        (10, 2.228138852),
        (29, 2.045229642),
        (30, 2.042272456),
        (60, 2.000297822),
        (120, 1.979930405),
        (1e9, 1.959963987),
    ],
)
def test_t_is_that_of_the_tables(df: float, t: float) -> None:
    assert t95(df) == pytest.approx(t, abs=1e-7)


@given(st.floats(0.6, 400))
def test_t_leaves_five_per_cent_in_both_tails(df: float) -> None:
    """By the density, integrated after x = √df·tan θ, at fractional degrees of freedom too."""
    constant = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    end, steps = math.atan(t95(df) / math.sqrt(df)), 2_000
    nodes = (end * (k + 0.5) / steps for k in range(steps))
    inside = 2 * constant * sum(math.cos(x) ** (df - 1) for x in nodes) * end / steps
    assert inside == pytest.approx(0.95, abs=2e-5)


def outcomes(rng: random.Random, images: int, rate: float) -> list[bool]:
    return [rng.random() < rate for _ in range(images)]


@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(2, 40))
def test_the_paired_margin_is_that_of_its_formula(number: int, seeds: int, images: int) -> None:
    rng = random.Random(number)
    networks, controls = ([outcomes(rng, images, p) for _ in range(seeds)] for p in (0.7, 0.5))
    margin = margin_of(
        [Score.of(a, "o") for a in networks], [Score.of(b, "o") for b in controls], 2.0
    )
    d = [
        [100 * (a - b) for a, b in zip(*pair, strict=True)]
        for pair in zip(networks, controls, strict=True)
    ]
    rows = [statistics.fmean(row) for row in d]
    columns = [statistics.fmean(column) for column in zip(*d, strict=True)]
    mean = statistics.fmean(rows)
    unexplained = sum(
        (d[i][j] - rows[i] - columns[j] + mean) ** 2 for i in range(seeds) for j in range(images)
    )
    v_s, v_i = statistics.variance(rows) / seeds, statistics.variance(columns) / images
    v_e = unexplained / ((seeds - 1) * (images - 1)) / (seeds * images)
    v = max(v_s + v_i - v_e, v_i)
    assert margin.margin == pytest.approx(mean, abs=1e-6)
    assert (margin.over_seeds, margin.over_images) == (pytest.approx(v_s), pytest.approx(v_i))
    assert margin.residual == pytest.approx(v_e, abs=1e-9)
    half = (
        t95(v**2 / (v_s**2 / (seeds - 1) + v_i**2 / (images - 1))) * math.sqrt(v)
        if v > 1e-12
        else 0
    )
    assert margin.interval.low == pytest.approx(max(mean - half, -100), abs=1e-5)
    assert margin.interval.high == pytest.approx(min(mean + half, 100), abs=1e-5)


def test_the_margin_over_seeds_counts_classes_equally() -> None:
    """Variances of images and residuals within classes, by NumPy's sums over each class."""
    rng = np.random.default_rng(5)
    labels = np.array([0] * 150 + [1] * 30 + [2] * 20)
    networks, controls = (rng.random((3, 200)) < p for p in (0.8, 0.6))
    scores = []
    for side in (networks, controls):
        scores.append([Score.of(hits.tolist(), "o", labels=labels.tolist()) for hits in side])
    margin = margin_of(*scores, 2.0)
    d = 100.0 * (networks.astype(float) - controls)
    by_seed, v_i, v_e = np.zeros(3), 0.0, 0.0
    for label in range(3):
        part = d[:, labels == label]
        n = part.shape[1]
        by_seed += part.mean(1) / 3
        v_i += part.mean(0).var(ddof=1) / n / 9
        rest = part - part.mean(1, keepdims=True) - part.mean(0) + part.mean()
        v_e += (rest**2).sum() / (2 * (n - 1)) / (3 * n) / 9
    assert margin.margin == pytest.approx(by_seed.mean())
    assert margin.over_seeds == pytest.approx(by_seed.var(ddof=1) / 3)
    assert (margin.over_images, margin.residual) == pytest.approx((v_i, v_e))
    assert margin.interval.kind.endswith("images, paired, stratified by class")
    shuffled = [Score.of(hits.tolist(), "p", labels=labels.tolist()) for hits in controls]
    unpaired = margin_of(scores[0], shuffled, 2.0)
    assert unpaired.margin == margin.margin and "unpaired" in unpaired.interval.kind
    noise = 0.0
    for side in (networks, controls):
        for label in range(3):
            part = side[:, labels == label]
            noise += part.var(1, ddof=1).mean() / part.shape[1] / 9
    assert unpaired.over_images == pytest.approx(100**2 * noise, rel=0.03)


def test_parts_are_compared_as_outcomes_are() -> None:
    """One network and three seeds of real-valued parts, paired and not, by the formulas."""
    rng = random.Random(2)
    networks, controls = (
        [[rng.gauss(m, 0.4) for _ in range(50)] for _ in range(3)] for m in (0.5, -2)
    )
    scores = [[Score.of_parts(parts, "o") for parts in side] for side in (networks, controls)]
    assert scores[1][0].value == pytest.approx(statistics.fmean(controls[0]), abs=1e-6)
    d = [a - b for a, b in zip(networks[0], controls[0], strict=True)]
    half = t95(49) * math.sqrt(statistics.variance(d) / 50)
    paired = margin_over(scores[0][0], scores[1][0]).interval
    assert paired is not None and paired.kind == "50 samples, paired"
    mean = statistics.fmean(d)
    assert (paired.low, paired.high) == pytest.approx((100 * (mean - half), 100 * (mean + half)))
    reordered = Score.of_parts(controls[0], "p")
    unpaired = margin_over(scores[0][0], reordered).interval
    noise = (statistics.variance(networks[0]) + statistics.variance(controls[0])) / 50
    assert unpaired is not None and unpaired.kind == "50 samples, unpaired"
    assert unpaired.high - unpaired.low == pytest.approx(200 * 1.959964 * math.sqrt(noise))
    alone = margin_over(scores[0][0], Score(0.2)).interval
    assert alone is not None and alone.low < 100 * (scores[0][0].value - 0.2) < alone.high
    over_seeds = margin_of(*scores, 2.0)
    rows = [
        [100 * (a - b) for a, b in zip(*p, strict=True)]
        for p in zip(networks, controls, strict=True)
    ]
    columns = [statistics.fmean(column) for column in zip(*rows, strict=True)]
    assert over_seeds.margin == pytest.approx(statistics.fmean(columns), abs=1e-4)
    assert over_seeds.over_images == pytest.approx(statistics.variance(columns) / 50, rel=1e-5)
    assert over_seeds.interval.high > 100 and over_seeds.verdict is SeedVerdict.PASS
    unpaired_seeds = margin_of(scores[0], [Score(0.2, 50)] * 3, 2.0)
    mean_noise = statistics.fmean(statistics.variance(part) / 50 for part in networks)
    assert unpaired_seeds.over_images == pytest.approx(2 * 100**2 * mean_noise, rel=1e-5)


def test_an_unpaired_margin_counts_the_images_once_for_all_seeds() -> None:
    margin = margin_of([Score(0.6, 1_000), Score(0.64, 1_000)], [Score(0.5, 500)] * 2, 2.0)
    assert margin.over_images == pytest.approx(1e4 * (0.62 * 0.38 / 1_000 + 0.25 / 500))
    assert margin.over_seeds == pytest.approx(statistics.variance([10, 14]) / 2)
    assert "unpaired" in margin.interval.kind
    unknown = margin_of([Score(0.6), Score(0.64)], [Score(0.5)] * 2, 2.0)
    assert unknown.images == 10_000 and "n_test" in unknown.caveat
    constant = margin_of([Score.of([True] * 9, "o")] * 2, [Score.of([False] * 9, "o")] * 2, 2.0)
    assert (constant.interval.low, constant.interval.high) == (100, 100)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "paired over 8 images"),
        ({"order": "p"}, "binomial"),
        ({"data": "x"}, "binomial"),
        ({"correct": None}, "binomial"),
    ],
)
def test_outcomes_are_paired_on_the_same_images_alone(changes: dict[str, Any], kind: str) -> None:
    network = Score.of([True] * 6 + [False] * 2, "o")
    control = Score(**{"value": 0.5, "images": 8, "correct": "0f", "order": "o", **changes})
    interval = margin_over(network, control).interval
    assert interval is not None and interval.kind.startswith(kind)
    assert margin_over(Score(0.5), control).interval is None


def test_paired_intervals_cover_the_truth() -> None:
    """95 % of the intervals, over simulated test sets of 400 images with a true margin of 5 pp."""
    rng, covered = random.Random(1), 0
    for _ in range(400):
        easy = [rng.random() for _ in range(400)]
        network, control = ([u < p for u in easy] for p in (0.65, 0.6))
        network = [hit != (rng.random() < 0.1) for hit in network]
        control = [hit != (rng.random() < 0.1) for hit in control]
        interval = margin_over(Score.of(network, "o"), Score.of(control, "o")).interval
        assert interval is not None
        covered += 5 * 0.8 in interval
    assert 0.92 <= covered / 400 <= 0.98


def skewed_outcomes(rng: random.Random) -> tuple[list[int], list[bool], list[bool]]:
    """Labels of 400 images, nine in ten of them of class 7, and who is right."""
    labels = [rng.choice((7, 2, 7, 7, 7, 7, 7, 7, 7, 7)) for _ in range(400)]
    network, control = [], []
    for label in labels:
        u = rng.random()
        network.append(u < (0.65 if label == 7 else 0.8))
        control.append(rng.random() < 0.1 or u < (0.6 if label == 7 else 0.5))
    return labels, network, control


def test_a_margin_counts_classes_equally_however_images_are_ordered() -> None:
    labels, network, control = skewed_outcomes(random.Random(3))
    margin = margin_over(*(Score.of(hits, "o", labels=labels) for hits in (network, control)))
    differences: dict[int, list[float]] = {7: [], 2: []}
    for label, hit, control_hit in zip(labels, network, control, strict=True):
        differences[label].append(100.0 * (hit - control_hit))
    mean = statistics.fmean(map(statistics.fmean, differences.values()))
    noise = sum(statistics.variance(d) / len(d) for d in differences.values()) / 4
    assert margin.pp == pytest.approx(mean) and margin.interval is not None
    assert margin.interval.kind == "paired over 400 images, stratified by class"
    width = (margin.interval.high - margin.interval.low) / 2
    assert width == pytest.approx(1.96 * math.sqrt(noise), rel=0.05)  # two images are added
    plain = margin_over(Score.of(network, "o"), Score.of(control, "o"))
    assert plain.pp == pytest.approx(sum(network) / 4 - sum(control) / 4) != margin.pp


def test_without_pairs_a_margin_counts_classes_equally_too() -> None:
    labels, network, control = skewed_outcomes(random.Random(3))
    scores = Score.of(network, "o", labels=labels), Score.of(control, "other", labels=labels)
    margin = margin_over(*scores)
    assert margin.interval is not None and not margin.skewed
    assert margin.interval.kind == "400 images, unpaired, stratified by class"
    assert margin.pp == margin_over(scores[0], Score.of(control, "o", labels=labels)).pp
    noise = 0.0
    for hits in (network, control):
        for label in (2, 7):
            of_class = [100 * hit for hit, each in zip(hits, labels, strict=True) if each == label]
            noise += statistics.variance(of_class) / len(of_class) / 4
    width = (margin.interval.high - margin.interval.low) / 2
    assert width == pytest.approx(1.96 * math.sqrt(noise), rel=0.02)


@pytest.mark.parametrize(("sizes", "skewed"), [((30, 20), False), ((31, 20), True)])
def test_a_plain_control_is_compared_with_the_plain_accuracy(
    sizes: tuple[int, int], skewed: bool
) -> None:
    labels = [0] * sizes[0] + [1] * sizes[1]
    network = Score.of([label == 0 for label in labels], labels=labels)
    margin = margin_over(network, Score(0.4, 50))
    assert margin.pp == round(100 * (network.value - 0.4), 9) and margin.skewed == skewed
    assert margin.interval is not None and "binomial" in margin.interval.kind
    over_seeds = margin_of([network, network], [Score(0.1)] * 2, 2.0)
    expected = SeedVerdict.INCONCLUSIVE if skewed else SeedVerdict.PASS
    assert over_seeds.verdict is expected and over_seeds.margin == pytest.approx(
        100 * network.value - 10
    )


def test_a_class_of_one_image_tells_nothing_for_certain() -> None:
    labels = [0] * 99 + [1]
    better = Score.of([True] * 100, "o", labels=labels)
    worse = Score.of([True] * 99 + [False], "o", labels=labels)
    margin = margin_over(better, worse)
    assert margin.pp == 50 and margin.interval is not None
    assert margin.interval.high - margin.interval.low > 50
    over_seeds = margin_of([better, better], [worse, worse], 2.0)
    assert over_seeds.margin == 50 and over_seeds.verdict is SeedVerdict.INCONCLUSIVE


def test_images_that_would_decide_decide() -> None:
    """With the number named the interval is as wide as the margin is far from what it leaves."""
    for away in (3.0, 0.6):
        needed = images_needed(1_000, 4, away)
        assert 4 * math.sqrt(1_000 / needed) == pytest.approx(away, rel=0.05)
        assert 4 * math.sqrt(1_000 / needed) <= away
    assert images_needed(10_000, 4, 0.01) == 0


def test_below_a_probe_by_two_standard_errors() -> None:
    assert not reads_less(0.7, 10_000, 0.715, 5_000) and reads_less(0.7, 10_000, 0.717, 5_000)


@pytest.mark.parametrize(
    ("margin", "half", "verdict"),
    [
        (4.0, 2.0, SeedVerdict.PASS),
        (4.0, 2.1, SeedVerdict.INCONCLUSIVE),
        (0.0, 2.0, SeedVerdict.INCONCLUSIVE),
        (0.0, 1.9, SeedVerdict.FIRE),
    ],
)
def test_the_verdict_of_seeds_has_three_values(
    margin: float, half: float, verdict: SeedVerdict
) -> None:
    result = seed_margin(margin, half)
    assert result.verdict is verdict and bool(result.needed) == (
        verdict is SeedVerdict.INCONCLUSIVE
    )


def test_how_many_seeds_would_decide_decides() -> None:
    """With the number named the interval excludes the minimum, with one less it does not."""
    networks = [Score(0.52, 10**7), Score(0.54, 10**7), Score(0.56, 10**7)]
    margin = margin_of(networks, [Score(0.5, 10**7)] * 3, 2.0)
    sd, least = margin.seed_sd, int(margin.needed.split("(")[1].split(" ")[0])
    assert t95(least - 1) * sd / math.sqrt(least) < 2 < t95(least - 2) * sd / math.sqrt(least - 1)
    few = margin_of([Score(0.53, 50), Score(0.54, 50)], [Score(0.5, 50)] * 2, 2.0)
    assert few.needed.startswith("more than 1,000 seeds, or a larger test set")
    close = margin_of([Score(0.52, 10**9), Score(0.5200001, 10**9)], [Score(0.5, 10**9)] * 2, 2.0)
    assert close.verdict is SeedVerdict.INCONCLUSIVE


# --- the report over seeds ---


def test_a_report_over_seeds_shows_each_and_says_what_follows() -> None:
    failing = SeedReport.of("dfa", [exploded(seed=seed) for seed in (2, 1, 3)], 2.0)
    assert [network.seed for network in failing.reports] == [
        1,
        2,
        3,
    ] and failing.margin.margin == -10.7
    text = str(failing)
    assert "seed-margin fails: mean margin −10.70 pp, 95 % CI [" in text
    assert "Training the blocks with this rule hurts." in text and ": FIRE\n" in text
    assert "several seeds share one control" not in text
    passing = SeedReport.of("bp", [healthy(seed=1), healthy(seed=2)], 2.0)
    assert "seed-margin fails" not in str(passing) and "two seeds rarely decide" in str(passing)
    shared = Control(Score(0.885, 10_000))
    unsure = SeedReport.of("bp", [healthy(seed=n, control=shared) for n in (1, 2)], 2.0)
    assert "is inconclusive" in str(unsure) and "share one control" in str(unsure)


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        ([healthy(seed=1)], "needs two or more networks"),
        ([healthy(seed=1), healthy(seed=1, checkpoint="b.pt")], "have the same seed: one training"),
        (
            [healthy(seed=1), healthy(seed=2, environment=healthy(seed=1).environment)],
            "bp_s1.pt and bp_s2.pt have the same checkpoint_sha256",
        ),
        ([healthy(seed=1), healthy("fa", seed=2)], "expected seeds of one method"),
        ([healthy(seed=1), healthy(seed=2, control=None)], "bp_s2.pt: no frozen-random control"),
        ([healthy(seed=1), healthy(seed=2, classes=1)], "bp_s2.pt: control rejected"),
        ([healthy(seed=1), report(seed=2, method_name="bp", headline_acc=None)], "no accuracy"),
    ],
)
def test_what_is_not_several_seeds_is_refused(reports: list[Report], message: str) -> None:
    with pytest.raises(AuditError, match=message):
        SeedReport.of("bp", reports, 2.0)
