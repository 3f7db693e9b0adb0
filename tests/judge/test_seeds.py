"""The margin over seeds: its closed form against numpy, hand-computed tables and a simulation of what it covers."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pytest_fadiag import Accuracy, AuditError, Control, DiagnosticReport
from pytest_fadiag.judge.margins import (
    ASSUMED_IMAGES,
    MOST_SEEDS,
    PAIRED_MAY,
    UNPAIRED,
    SeedMargin,
    SeedVerdict,
    Variance,
    seed_margin,
)
from pytest_fadiag.judge.seed_report import TWO_SEEDS, SeedReport
from pytest_fadiag.judge.student_t import t95


def packed(outcomes: Any) -> list[Accuracy]:
    """The accuracies of a table of outcomes, seeds by images."""
    rows = np.asarray(outcomes, bool)
    digits = -(-rows.shape[1] // 4)
    return [Accuracy(float(row.mean()), len(row), np.packbits(row).tobytes().hex()[:digits], "order") for row in rows]


def of_differences(differences: Any, minimum: float = 2.0) -> SeedMargin:
    """The margin of networks that are right alone where the table has 1, their controls where it has -1."""
    table = np.asarray(differences)
    return seed_margin(packed(table > 0), packed(table < 0), minimum)


def drawn(
    generator: np.random.Generator,
    seeds: int,
    images: int,
    *,
    margin: float,
    sd: float,
    common: float,
    own: float,
    tables: tuple[int, ...] = (),
) -> np.ndarray:
    """A table of differences, or several, whose mean margin is known, with a spread over seeds.

    On the share ``common`` of the images all seeds differ from their controls alike, on ``own`` of the others each by itself.
    """

    def signs(shape: tuple[int, ...], share: float, mean: np.ndarray | float) -> np.ndarray:
        lots = generator.random(shape, np.float32)
        return np.where(lots < (share + mean) / 2, 1, np.where(lots < share, -1, 0)).astype(np.int8)

    shift = (margin + sd * generator.standard_normal((*tables, seeds, 1))) / (1 - common)
    shared = signs((*tables, 1, images), common, 0.0)
    return np.where(shared == 0, signs((*tables, seeds, images), own, shift.astype(np.float32)), shared)


def plain_formula(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """v_s, v_i and v_e of a table of differences, or of several, each by its definition."""
    n, images = table.shape[-2:]
    by_seed, by_image = table.mean(-1, keepdims=True), table.mean(-2, keepdims=True)
    rest = table - by_seed - by_image + table.mean((-1, -2), keepdims=True)
    v_s = by_seed.var((-1, -2), ddof=1) / n
    v_i = by_image.var((-1, -2), ddof=1) / images
    return v_s, v_i, (rest**2).sum((-1, -2)) / ((n - 1) * (images - 1)) / (n * images)


# --- the interval ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seeds", "images"), [(2, 7), (2, 301), (3, 1000), (5, 77), (10, 4002)])
@pytest.mark.parametrize("sd", [0.0, 0.03])
def test_the_interval_is_that_of_the_formula_in_numpy(seeds: int, images: int, sd: float) -> None:
    generator = np.random.default_rng(seeds)
    table = drawn(generator, seeds, images, margin=0.03, sd=sd, common=0.1, own=0.3)
    both_right = (table == 0) & (generator.random(table.shape) < 0.7)
    judged = seed_margin(packed((table > 0) | both_right), packed((table < 0) | both_right), 2.0)
    v_s, v_i, v_e = plain_formula(table)
    v = max(v_s + v_i - v_e, v_i)
    df = v**2 / (v_s**2 / (seeds - 1) + v_i**2 / (images - 1))
    half = t95(df) * math.sqrt(v)
    low, high = (100 * float(np.clip(table.mean() + side * half, -1, 1)) for side in (-1, 1))
    assert judged.margin == pytest.approx(100 * table.mean())
    assert (judged.interval.low, judged.interval.high) == (pytest.approx(low), pytest.approx(high))
    assert judged.degrees_of_freedom == pytest.approx(df)
    assert judged.seed_sd == pytest.approx(100 * table.mean(1).std(ddof=1))
    parts = judged.variance
    assert [parts.over_seeds, parts.over_images, parts.residual] == pytest.approx([1e4 * v_s, 1e4 * v_i, 1e4 * v_e])
    assert judged.interval.kind == f"over {seeds} seeds and {images:,} images, paired" and not judged.caveat


def test_a_table_computed_by_hand() -> None:
    """Seed margins 1/2 and 1/4; image margins 1, 1/2, 0, 0; the rest ±1/8 and ±3/8."""
    judged = of_differences([[1, 1, 0, 0], [1, 0, 0, 0]])
    assert judged.margin == 37.5
    assert judged.variance == Variance(1e4 / 64, 1e4 * 11 / 192, 1e4 / 64)
    assert judged.variance.total == pytest.approx(1e4 * 11 / 192)
    assert judged.degrees_of_freedom == pytest.approx((11 / 192) ** 2 / ((1 / 64) ** 2 + (11 / 192) ** 2 / 3))


def test_seeds_that_agree_on_every_image_leave_the_noise_of_the_images() -> None:
    """Five images, one of them better: v = 0.2/5, four degrees of freedom, t = 2.776445 by the printed tables."""
    for seeds in (2, 6):
        judged = of_differences([[1, 0, 0, 0, 0]] * seeds)
        assert judged.degrees_of_freedom == pytest.approx(4) and judged.seed_sd == 0
        assert (judged.interval.low, judged.interval.high) == pytest.approx((20 - 55.5289, 20 + 55.5289), abs=1e-4)


def test_seeds_that_are_alike_on_every_image_leave_the_spread_of_the_seeds() -> None:
    """One seed of ten better on all images: v = 0.1/10, nine degrees of freedom, t = 2.262157 by the printed tables."""
    judged = of_differences([[1] * 50] + [[0] * 50] * 9)
    assert judged.degrees_of_freedom == pytest.approx(9)
    assert (judged.interval.low, judged.interval.high) == pytest.approx((10 - 22.62157, 10 + 22.62157), abs=1e-5)


@pytest.mark.parametrize(("table", "margin"), [([[0, 0]] * 3, 0.0), ([[-1, -1]] * 2, -100.0), ([[1, 0], [0, 1]], 50.0)])
def test_without_variance_the_interval_is_the_point(table: list[list[int]], margin: float) -> None:
    judged = of_differences(table)
    assert (judged.interval.low, judged.interval.high, judged.margin) == (margin, margin, margin)
    assert judged.degrees_of_freedom is None
    assert judged.verdict is (SeedVerdict.PASS if margin >= 2 else SeedVerdict.FIRE)


def test_no_interval_goes_beyond_what_a_margin_can_be() -> None:
    judged = of_differences([[1] * 10, [-1] * 10])
    assert (judged.interval.low, judged.interval.high) == (-100.0, 100.0)


@pytest.mark.parametrize(("seeds", "repetitions"), [(3, 3000), (5, 1500), (10, 1000)])
@pytest.mark.parametrize("sd", [0.0, 0.03, 0.09])
def test_it_covers_what_it_says(seeds: int, repetitions: int, sd: float) -> None:
    """More than 0.95 where seeds do not vary; the least of three seeds is 0.922, where their part is six times the images'."""
    generator = np.random.default_rng(2024)
    covered = []
    for _ in range(repetitions // 250):
        tables = drawn(generator, seeds, 1000, margin=0.02, sd=sd, common=0.1, own=0.7, tables=(250,))
        halves = [Variance(*parts).half_width(seeds, 1000) for parts in zip(*plain_formula(tables), strict=True)]
        covered += (abs(tables.mean((1, 2)) - 0.02) <= halves).tolist()
    assert 0.92 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("sd", [0.0, 0.01, 0.02, 0.03, 0.06, 0.09])
def test_on_ten_thousand_images_it_covers_93_to_99_percent(seeds: int, sd: float) -> None:
    """The means of so many images are normal: what seeds have in common, and what each has of its own."""
    images, common, own, generator = 10_000, 0.1, 0.63, np.random.default_rng(7)
    shared = generator.standard_normal((40_000, 1)) * math.sqrt(common / images)
    margins = shared + generator.standard_normal((40_000, seeds)) * math.hypot(sd, math.sqrt(own / images))
    over_images, residual = (common + own / seeds) / images, own / seeds / images
    over_seeds = margins.var(1, ddof=1) / seeds
    some = np.quantile(over_seeds, np.linspace(0, 1, 200))  # the other two parts are the same in every repetition
    halves = [Variance(part, over_images, residual).half_width(seeds, images) for part in some]
    assert 0.93 <= np.mean(abs(margins.mean(1)) <= np.interp(over_seeds, some, halves)) <= 0.99


@pytest.mark.parametrize(
    ("margin", "verdict"), [(0.10, SeedVerdict.PASS), (-0.05, SeedVerdict.FIRE), (0.02, SeedVerdict.INCONCLUSIVE)]
)
def test_the_verdict_has_three_values(margin: float, verdict: SeedVerdict) -> None:
    table = drawn(np.random.default_rng(0), 3, 4000, margin=margin, sd=0.0, common=0.1, own=0.2)
    assert of_differences(table).verdict is verdict


def test_an_interval_that_begins_at_the_minimum_passes_as_a_margin_that_equals_it_does() -> None:
    margin = of_differences(drawn(np.random.default_rng(0), 3, 4000, margin=0.1, sd=0.0, common=0.1, own=0.2))
    assert replace(margin, minimum=margin.interval.low).verdict is SeedVerdict.PASS
    assert replace(margin, minimum=margin.interval.high).verdict is SeedVerdict.INCONCLUSIVE
    assert replace(margin, minimum=margin.interval.high + 1e-9).verdict is SeedVerdict.FIRE


def test_ten_seeds_on_ten_thousand_images_take_milliseconds() -> None:
    table = drawn(np.random.default_rng(0), 10, 10_000, margin=0.02, sd=0.01, common=0.1, own=0.2)
    ours, theirs = packed(table > 0), packed(table < 0)
    start = time.process_time()
    seed_margin(ours, theirs, 2.0)
    assert time.process_time() - start < 0.1


def test_seeds_need_controls_and_more_than_one_image() -> None:
    with pytest.raises(AuditError, match="two or more seeds, each with its control; got 1 and 1"):
        of_differences([[1, 0]])
    with pytest.raises(AuditError, match="got 2 and 3"):
        seed_margin([Accuracy(0.4)] * 2, [Accuracy(0.3)] * 3, 2.0)
    with pytest.raises(AuditError, match="two or more test images, whose noise it counts; got 1"):
        of_differences([[1], [0]])
    with pytest.raises(AuditError, match="two or more test images"):
        seed_margin([Accuracy(0.4, 1)] * 2, [Accuracy(0.3, 1)] * 2, 2.0)


# --- what would decide -----------------------------------------------------------------------------------------------


def inconclusive(variance: Variance, margin: float, seeds: int = 3) -> SeedMargin:
    """A margin of 10,000 images that its spread leaves open."""
    half = variance.half_width(seeds, 10_000)
    interval = replace(of_differences([[1, 0]] * 2).interval, low=margin - half, high=margin + half)
    result = SeedMargin(seeds, 10_000, margin, interval, 2.0, variance)
    assert result.verdict is SeedVerdict.INCONCLUSIVE
    return result


SPREADS = {
    "of the seeds": Variance(0.5, 0.01, 0.01),
    "of the images": Variance(0.03, 0.2, 0.02),
    "of each seed on its own": Variance(0.1, 0.1, 0.1),
    "of all": Variance(0.4, 0.1, 0.05),
    "less of the seeds than by chance": Variance(0.01, 0.1, 0.04),
}


@pytest.mark.parametrize("spread", SPREADS)
def test_the_number_of_seeds_that_is_said_is_the_first_that_decides(spread: str) -> None:
    """Counted up one by one, with v_s, v_e and each seed's own part of v_i falling with the number of seeds."""
    now = SPREADS[spread]
    distance = (now.half_width(3, 10_000) + 1.96 * math.sqrt(now.over_images - now.residual)) / 2
    for seeds in range(4, MOST_SEEDS):
        v_s, v_e = now.over_seeds * 3 / seeds, now.residual * 3 / seeds
        v_i = now.over_images - now.residual + v_e
        v = max(v_s + v_i - v_e, v_i)
        df = v**2 / (v_s**2 / (seeds - 1) + v_i**2 / 9_999)
        if t95(df) * math.sqrt(v) <= distance:
            break
    more = "1 more seed" if seeds == 4 else f"{seeds - 3} more seeds"
    for margin in (2.0 - distance, 2.0 + distance):
        said = inconclusive(now, margin).needed()
        assert said == f"about {more} ({seeds} in all) would decide if margin and spread stay as they are"


@pytest.mark.parametrize("spread", SPREADS)
def test_more_seeds_never_widen_the_interval(spread: str) -> None:
    halves = [SPREADS[spread].with_seeds(3 / seeds).half_width(seeds, 10_000) for seeds in range(3, 200)]
    assert all(more <= fewer for fewer, more in pairwise(halves))


def test_the_farther_the_margin_the_fewer_seeds_decide() -> None:
    numbers = [
        int(inconclusive(SPREADS["of the seeds"], 2.0 + side * distance).needed().split()[1])
        for side in (-1, 1)
        for distance in (0.25, 0.5, 1.0, 1.5)
    ]
    assert numbers[:4] == numbers[4:] == sorted(numbers[:4], reverse=True) and len(set(numbers)) == 4


@pytest.mark.parametrize(("common", "own", "sd"), [(0.0, 0.15, 0.0), (0.03, 0.1, 0.01), (0.1, 0.1, 0.0)])
def test_the_variance_of_more_seeds_is_foreseen(common: float, own: float, sd: float) -> None:
    """From three seeds that of twelve, against the spread of the means of many tables with twelve; too small for nobody.

    It is up to half as large again where seeds do not vary, since no part of a variance counts as negative.
    """
    generator = np.random.default_rng(11)

    def table(seeds: int) -> np.ndarray:
        return drawn(generator, seeds, 1000, margin=0.02, sd=sd, common=common, own=own)

    foreseen = [of_differences(table(3)).variance.with_seeds(3 / 12).total for _ in range(400)]
    assert 0.8 < np.mean(foreseen) / np.var([100 * table(12).mean() for _ in range(400)]) < 1.7


def test_where_more_seeds_cannot_decide_that_is_said() -> None:
    images = inconclusive(SPREADS["of the images"], 2.5)
    assert images.needed() == (
        "more seeds alone cannot decide: the noise of the 10,000 test images is too large, more of them are needed"
    )
    assumed = replace(images, images=None, assumed_images=10_000, caveat="unpaired").needed()
    assert "10,000 assumed test images" in assumed and assumed.endswith(PAIRED_MAY)
    close = inconclusive(Variance(0.5, 0.0), 2.001).needed()
    assert close == "the margin is so close to the minimum that more than 1,000 seeds would be needed"
    assert "exactly the minimum" in inconclusive(SPREADS["of all"], 2.0).needed()
    assert of_differences([[1, 1]] * 2).needed() == "", "nothing more is needed"


# --- accuracies alone ------------------------------------------------------------------------------------------------


def test_outcomes_on_the_same_images_are_paired() -> None:
    table = drawn(np.random.default_rng(0), 3, 801, margin=0.05, sd=0.0, common=0.1, own=0.2)
    ours, theirs = packed(table > 0), packed(table < 0)
    assert not seed_margin(ours, theirs, 2.0).caveat
    assert seed_margin(ours, [*theirs[:2], replace(theirs[2], order="another")], 2.0).caveat == UNPAIRED
    assert seed_margin(ours, [*theirs[:2], replace(theirs[2], correct=None)], 2.0).caveat == UNPAIRED
    of_data = [[replace(each, data="one") for each in rows] for rows in (ours, theirs)]
    assert not seed_margin(of_data[0], theirs, 2.0).caveat, "an older control has no digest of its data"
    elsewhere = [*of_data[1][:2], replace(of_data[1][2], data="another")]
    assert seed_margin(of_data[0], elsewhere, 2.0).caveat == UNPAIRED


def test_without_outcomes_the_noise_of_the_images_is_binomial_and_does_not_shrink_with_seeds() -> None:
    ours, theirs = [0.363, 0.371, 0.352], [0.349, 0.351, 0.344]
    margins = 100 * (np.array(ours) - np.array(theirs))
    for times in (1, 4):
        judged = seed_margin([Accuracy(p, 10_000) for p in ours * times], [Accuracy(q, 8_000) for q in theirs * times], 2.0)
        p, q = np.mean(ours), np.mean(theirs)
        v_s = np.tile(margins, times).var(ddof=1) / (3 * times)
        v_i = 1e4 * (p * (1 - p) / 10_000 + q * (1 - q) / 8_000)
        df = (v_s + v_i) ** 2 / (v_s**2 / (3 * times - 1) + v_i**2 / 7_999)
        half = t95(df) * math.sqrt(v_s + v_i)
        assert judged.variance == Variance(pytest.approx(v_s), pytest.approx(v_i), 0.0)
        assert (judged.interval.low, judged.interval.high) == pytest.approx((margins.mean() - half, margins.mean() + half))
        assert judged.interval.kind == f"over {3 * times} seeds and 8,000 images, unpaired"
        assert (judged.images, judged.caveat) == (8_000, UNPAIRED)


def test_without_the_number_of_images_ten_thousand_are_assumed_and_a_caveat_says_so() -> None:
    ours, theirs = [Accuracy(0.36), Accuracy(0.37), Accuracy(0.35)], [Accuracy(0.349)] * 3
    judged = seed_margin(ours, theirs, 2.0)
    stated = seed_margin([replace(each, images=ASSUMED_IMAGES) for each in ours], theirs, 2.0)
    assert (judged.interval.low, judged.interval.high) == (stated.interval.low, stated.interval.high)
    assert (judged.images, judged.assumed_images, stated.assumed_images) == (None, 10_000, None)
    assert judged.interval.kind == "over 3 seeds and 10,000 assumed images, unpaired"
    assert all(word in judged.caveat for word in ("10,000 were assumed", "n_test in the log's config", "images"))
    assert stated.caveat == UNPAIRED
    few = seed_margin([*ours[:2], Accuracy(0.35, 500)], theirs, 2.0)
    assert few.assumed_images == 500, "no more than another seed is stated to have"


def test_seeds_that_agree_do_not_decide_without_the_noise_of_their_images() -> None:
    """Three seeds at +2.4, +2.5 and +2.6 over a minimum of 2.3: on 10,000 images the noise is half a point."""
    judged = seed_margin([Accuracy(0.864), Accuracy(0.865), Accuracy(0.866)], [Accuracy(0.84)] * 3, 2.3)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert "the noise of the 10,000 assumed test images is too large" in judged.needed()


@pytest.mark.parametrize("trial", range(6))
def test_accuracies_alone_decide_nothing_that_the_images_do_not(trial: int) -> None:
    generator = np.random.default_rng(trial)
    difficulty = generator.random(2000)
    hits = []
    for accuracy in (0.39 + trial / 200, 0.37):
        scores = difficulty + generator.normal(0, 0.15, (3, 2000))
        hits.append(packed(scores < np.quantile(scores, accuracy, axis=1, keepdims=True)))
    whole = seed_margin(hits[0], hits[1], 2.0)
    bare = seed_margin(*([replace(each, correct=None) for each in rows] for rows in hits), 2.0)
    assert bare.interval.low <= whole.interval.low and bare.interval.high >= whole.interval.high
    assert bare.verdict in (whole.verdict, SeedVerdict.INCONCLUSIVE)


# --- the report ------------------------------------------------------------------------------------------------------


def of_seed(seed: int | None, digest: str = "", **changes: Any) -> DiagnosticReport:
    values: dict[str, Any] = {
        "method_name": "fa",
        "residual_norms": [1.0, 2.0],
        "bp_grad_norms": [1e-3, 1e-3],
        "stability_layer": 1,
        "cross_batch_stability": 0.1,
        "headline_acc": 0.45,
        "frozen_baseline_acc": 0.36,
        "seed": seed,
        "environment": {"checkpoint_sha256": digest} if digest else {},
    }
    return DiagnosticReport(**{**values, **changes})


def test_one_training_under_several_names_is_not_several_seeds() -> None:
    assert SeedReport.of([of_seed(1), of_seed(2)], 2.0).margin.seeds == 2
    assert SeedReport.of([of_seed(1, "a"), of_seed(2, "b")], 2.0).margin.seeds == 2
    with pytest.raises(AuditError, match=r"fa_s1\.pt and fa_s2\.pt are the same file under two names.*leave"):
        SeedReport.of(
            [of_seed(1, "a", checkpoint="fa_s1.pt"), of_seed(2, "a", checkpoint="fa_s2.pt"), of_seed(3)],
            2.0,
        )
    with pytest.raises(
        AuditError, match=r"fa, seed 1 and copy\.pt are both of seed 1 by their config or name.*correct the seed"
    ):
        SeedReport.of([of_seed(1, "a"), of_seed(1, "b", checkpoint="copy.pt")], 2.0)


def test_the_report_states_the_number_of_seeds_and_that_two_rarely_decide() -> None:
    two, three = (str(SeedReport.of([of_seed(seed) for seed in range(number)], 2.0)) for number in (2, 3))
    assert "FA seed margin: fa, 2 seeds\n" in two and "FA seed margin: fa, 3 seeds\n" in three
    assert TWO_SEEDS in two and TWO_SEEDS not in three
    assert "note: the number of test images is not known: 10,000 were assumed" in three
    assert three.endswith("VERDICT: PASS")


@pytest.mark.parametrize(
    ("accuracy", "control", "said"),
    [
        (0.3737, 0.36, r"The blocks add 1\.37 pp \(1\.\d\d to 1\.\d\d\), less than the 2 pp that the protocol asks"),
        (0.36, 0.36, r"holds 0: no evidence that the blocks help"),
        (0.34, 0.36, r"The same network with random blocks is better by 2\.00 pp \(1\.\d\d to 2\.\d\d\)\. Trained so"),
    ],
)
def test_a_method_that_falls_short_says_what_its_interval_carries(accuracy: float, control: float, said: str) -> None:
    images = 1_000_000
    judged = [
        of_seed(
            seed,
            headline_acc=accuracy,
            frozen_baseline_acc=control,
            accuracy=Accuracy(accuracy, images),
            control=Control(Accuracy(control, images), seed=seed),
        )
        for seed in (1, 2, 3)
    ]
    text = str(SeedReport.of(judged, 2.0))
    assert re.search(said, text) and text.endswith("VERDICT: FIRE")
    assert ("no evidence" in text) is (accuracy == control)


def test_outcomes_on_other_data_with_the_same_labels_are_not_compared() -> None:
    hits = [True] * 60 + [False] * 40
    ours, same, other = (Accuracy.of(hits, "labels", data) for data in ("one", "one", "another"))
    intervals = [
        of_seed(1, headline_acc=0.6, accuracy=ours, control=Control(control)).to_dict()["margin_interval"]
        for control in (same, replace(same, data=None), other)
    ]
    assert [own and own["kind"].partition(" ")[0].strip(",") for own in intervals] == ["paired", "paired", None]
