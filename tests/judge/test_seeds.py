"""The margin over seeds, against an independent bootstrap and closed forms."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_fadiag import Accuracy, AuditError, Control, DiagnosticReport
from pytest_fadiag.judge.seed_report import SeedReport
from pytest_fadiag.judge.seeds import (
    ASSUMED_IMAGES,
    FEW_SEEDS,
    PAIRED_MAY,
    UNPAIRED,
    SeedMargin,
    SeedVerdict,
    seed_margin,
    seed_margin_of_accuracies,
)
from pytest_fadiag.judge.spread import Present, Spread
from pytest_fadiag.judge.statistics import Interval


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


# --- what would decide -----------------------------------------------------------------------------------------------


def drawn(seeds: int, images: int, spread: dict[str, float], seed: int) -> tuple[list[list[bool]], list[list[bool]]]:
    """Networks that differ from their controls by a margin, from seed to seed, on images of all seeds and on their own.

    ``common`` and ``specific`` are the shares of images that all seeds, or each by itself, tell from the control.
    """
    generator = np.random.default_rng(seed)
    common, specific = spread["common"], spread["specific"]
    all_seeds = generator.choice([1, -1, 0], images, p=[common / 2, common / 2, 1 - common])
    shift = (spread["margin"] + spread["seed"] * generator.standard_normal(seeds)) / (1 - common)
    lots = generator.random((seeds, images))
    own = np.where(lots < (specific + shift)[:, None] / 2, 1, np.where(lots < specific, -1, 0))
    differences = np.where(all_seeds == 0, own, all_seeds)
    return (differences > 0).tolist(), (differences < 0).tolist()


KINDS = {
    "of each seed": {"margin": 0.028, "seed": 0.0, "common": 0.0, "specific": 0.15},
    "of the images": {"margin": 0.031, "seed": 0.0, "common": 0.1, "specific": 0.06},
    "of the seeds": {"margin": 0.031, "seed": 0.015, "common": 0.0, "specific": 0.05},
    "mixed": {"margin": 0.034, "seed": 0.008, "common": 0.03, "specific": 0.1},
}


def present(kind: str, seeds: int = 3, images: int = 1500) -> Present:
    """What a measurement that met margin and spread exactly would know."""
    spread = KINDS[kind]
    margin, common = spread["margin"], spread["common"]
    own = margin / (1 - common)
    parts = Spread(
        100 * spread["seed"],
        100 * (common + (1 - common) * own**2 - margin**2) ** 0.5,
        100 * ((1 - common) * (spread["specific"] - own**2)) ** 0.5,
    )
    half = 1.96 * parts.resampled(seeds, images) ** 0.5
    return Present(parts, seeds, images, 100 * margin - 2.0, half)


def totals(text: str) -> tuple[int | None, int | None]:
    found = (re.search(rf"{what} \(([\d,]+) in all", text) for what in ("seeds", "test images"))
    seeds, images = (None if match is None else int(match[1].replace(",", "")) for match in found)
    return seeds, images


@pytest.mark.parametrize("kind", KINDS)
def test_the_spread_is_split_into_its_parts(kind: str) -> None:
    """Also those of a table that is too small for one of them: nothing is counted twice."""
    expected = present(kind).spread
    ours, theirs = drawn(60, 3000, KINDS[kind], 1)
    found = Spread.of(np.array(ours, float) - np.array(theirs, float))
    assert (found.seed, found.common, found.specific) == (
        pytest.approx(expected.seed, abs=0.35),
        pytest.approx(expected.common, abs=2.5),
        pytest.approx(expected.specific, rel=0.05),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_the_variance_of_the_bootstrap_is_foreseen(kind: str, seeds: int) -> None:
    widths = []
    for trial in range(12):
        ours, theirs = (np.array(rows, float) for rows in drawn(seeds, 800, KINDS[kind], trial))
        generator = np.random.default_rng(trial)
        rows = generator.multinomial(seeds, np.full(seeds, 1 / seeds), 400) / seeds
        columns = generator.multinomial(800, np.full(800, 1 / 800), 400) / 800
        widths.append(((rows @ (ours - theirs)) * columns).sum(1).var() * 1e4)
    assert np.mean(widths) == pytest.approx(present(kind).spread.resampled(seeds, 800), rel=0.35)


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_that_are_said_to_decide_do_in_most_repetitions_and_a_third_of_them_in_few(kind: str) -> None:
    now = present(kind)
    seeds, images = totals(now.needed())
    ways = [(seeds, now.images), (now.seeds, images)] if "together" not in now.needed() else [(seeds, images)]
    for way in ways:
        if None in way or way[0] * way[1] > 200_000:  # type: ignore[operator]
            continue
        few = [max(2, way[0] // 3) if way[0] > now.seeds else way[0], way[1] // 3 if way[1] > now.images else way[1]]  # type: ignore[operator]
        decided, too_early = (
            np.mean([seed_margin(*drawn(*size, KINDS[kind], trial), 2.0).needed() == "" for trial in range(12)])
            for size in (way, few)
        )
        assert decided >= 7 / 12
        assert too_early <= 7 / 12


def test_what_would_decide_is_said() -> None:
    judged = seed_margin(*outcomes(3, 1000, 0.375, 0.35), 2.0)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert totals(judged.needed()) > (3, 1000)  # type: ignore[operator]
    assert judged.needed().endswith(" would decide")
    assert present("of the images").needed().endswith("would decide; more seeds alone are not expected to")
    assert present("of the seeds", images=10**6).needed().endswith("would decide; more test images alone are not expected to")
    together = replace(present("mixed"), distance=0.5).needed()
    assert re.fullmatch(
        r"about [\d,]+ more seeds \(.*\) together with [\d,]+ more test images \(.*\) would decide; .*", together
    )
    assert "more seeds or test images alone are not expected to" in together
    assert "exactly the minimum" in replace(present("mixed"), distance=0.0).needed()
    assert "so close to the minimum" in replace(present("mixed"), distance=1e-6).needed()
    assert seed_margin(*outcomes(3, 4000, 0.45, 0.35), 2.0).needed() == "", "nothing more is needed"


def test_noise_of_each_seed_alone_shrinks_with_seeds_and_is_not_counted_twice() -> None:
    """Three seeds whose disagreements with their controls are on images of their own, without any spread between seeds."""
    ours, theirs = np.zeros((3, 3000), bool), np.zeros((3, 3000), bool)
    for seed, (better, worse) in enumerate(((265, 185), (267, 187), (266, 186))):
        ours[seed, 1000 * seed : 1000 * seed + better] = True
        theirs[seed, 1000 * seed + better : 1000 * seed + better + worse] = True
    judged = seed_margin(ours.tolist(), theirs.tolist(), 2.0)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert (judged.seed_part, judged.common_part) == (0.0, pytest.approx(0.0, abs=1.0))
    assert "alone" not in judged.needed()
    seeds, images = totals(judged.needed())
    assert seeds is not None and images is not None
    assert 10 <= seeds <= 30, "more seeds do decide: 8 to 12 of this kind begin to"
    assert (
        seed_margin(
            np.tile(ours, (1, images // 3000 + 1)).tolist(), np.tile(theirs, (1, images // 3000 + 1)).tolist(), 2.0
        ).needed()
        == ""
    )


def test_an_interval_that_begins_at_the_minimum_passes_as_a_margin_that_equals_it_does() -> None:
    margin = seed_margin(*outcomes(3, 4000, 0.45, 0.35), 2.0)
    assert replace(margin, minimum=margin.interval.low).verdict is SeedVerdict.PASS
    assert replace(margin, minimum=margin.interval.high).verdict is SeedVerdict.INCONCLUSIVE
    assert replace(margin, minimum=margin.interval.high + 1e-9).verdict is SeedVerdict.FIRE


def test_a_margin_of_an_earlier_version_says_what_would_decide_from_what_it_has() -> None:
    older = SeedMargin(3, 1000, 3.0, Interval(1.0, 5.0, "bootstrap"), 2.0, seed_sd=1.0, image_sd=30.0)
    assert totals(older.needed())[1] is not None
    alone = replace(older, images=None, image_sd=None)
    assert re.fullmatch(r"about \d+ more seeds \(\d+ in all\) would decide", alone.needed())


# --- accuracies alone ------------------------------------------------------------------------------------------------


def test_outcomes_on_the_same_images_are_paired() -> None:
    ours, theirs = outcomes(3, 800, 0.4, 0.35)
    packed = [[Accuracy.of(row, "order") for row in rows] for rows in (ours, theirs)]
    assert seed_margin_of_accuracies(*packed, 2.0) == seed_margin(ours, theirs, 2.0)
    assert not seed_margin(ours, theirs, 2.0).caveat
    other = [*packed[1][:2], Accuracy.of(theirs[2], "another order")]
    assert seed_margin_of_accuracies(packed[0], other, 2.0).caveat == UNPAIRED
    of_data = [[replace(each, data="one") for each in rows] for rows in packed]
    assert not seed_margin_of_accuracies(of_data[0], packed[1], 2.0).caveat, "an older control has no digest of its data"
    elsewhere = [*of_data[1][:2], replace(of_data[1][2], data="another")]
    assert seed_margin_of_accuracies(of_data[0], elsewhere, 2.0).caveat == UNPAIRED


def test_without_outcomes_the_noise_of_the_images_is_binomial_and_shared_by_the_seeds() -> None:
    """Seeds that agree leave the images' noise alone, whose standard error has a closed form."""
    judged = seed_margin_of_accuracies([Accuracy(0.363, 10_000)] * 3, [Accuracy(0.349)] * 3, 2.0)
    error = 100 * ((0.363 * 0.637 + 0.349 * 0.651) / 10_000) ** 0.5
    assert judged.interval.low == pytest.approx(1.4 - 1.96 * error, abs=0.08)
    assert judged.interval.high == pytest.approx(1.4 + 1.96 * error, abs=0.08)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert "10,000 images, unpaired" in judged.interval.kind
    assert judged.images == 10_000
    assert judged.needed().endswith(f"would decide; more seeds alone are not expected to; {PAIRED_MAY}")


def test_without_the_number_of_images_ten_thousand_are_assumed_and_a_caveat_says_so() -> None:
    ours, theirs = [Accuracy(0.36), Accuracy(0.37), Accuracy(0.35)], [Accuracy(0.349)] * 3
    judged = seed_margin_of_accuracies(ours, theirs, 2.0)
    stated = seed_margin_of_accuracies([replace(each, images=ASSUMED_IMAGES) for each in ours], theirs, 2.0)
    assert (judged.interval.low, judged.interval.high) == (stated.interval.low, stated.interval.high)
    assert (judged.images, judged.assumed_images, stated.assumed_images) == (None, 10_000, None)
    assert judged.interval.kind == "bootstrap over 3 seeds, binomial over 10,000 images, assumed and unpaired"
    assert all(word in judged.caveat for word in ("10,000 were assumed", "n_test in the log's config", "images"))
    assert stated.caveat == UNPAIRED
    few = seed_margin_of_accuracies([*ours[:2], Accuracy(0.35, 500)], theirs, 2.0)
    assert few.assumed_images == 500, "no more than another seed is stated to have"
    with pytest.raises(AuditError, match="two or more seeds"):
        seed_margin_of_accuracies(ours[:1], theirs[:1], 2.0)


def test_seeds_that_agree_do_not_decide_without_the_noise_of_their_images() -> None:
    """Three seeds at +2.4, +2.5 and +2.6 over a minimum of 2.3: on 10,000 images the noise is half a point."""
    judged = seed_margin_of_accuracies([Accuracy(0.864), Accuracy(0.865), Accuracy(0.866)], [Accuracy(0.84)] * 3, 2.3)
    assert judged.verdict is SeedVerdict.INCONCLUSIVE
    assert "being assumed now" in judged.needed()


@pytest.mark.parametrize("trial", range(6))
def test_accuracies_alone_decide_nothing_that_the_images_do_not(trial: int) -> None:
    ours, theirs = outcomes(3, 2000, 0.39 + trial / 200, 0.37, trial)
    whole = seed_margin(ours, theirs, 2.0)
    bare = seed_margin_of_accuracies(
        *([Accuracy(Accuracy.of(row).value, 2000) for row in rows] for rows in (ours, theirs)), 2.0
    )
    assert bare.interval.low <= whole.interval.low + 0.1
    assert bare.interval.high >= whole.interval.high - 0.1
    assert bare.verdict in (whole.verdict, SeedVerdict.INCONCLUSIVE)


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


def test_the_report_says_that_few_seeds_make_the_interval_narrow() -> None:
    text = str(SeedReport.of([of_seed(seed) for seed in (1, 2, 3)], 2.0))
    assert f"3 seeds: a sign-flip test over them cannot reach p < 0.125\n    {FEW_SEEDS}\n" in text
    assert "note: the number of test images is not known: 10,000 were assumed" in text
    assert text.endswith("VERDICT: PASS")
    assert FEW_SEEDS not in str(SeedReport.of([of_seed(seed) for seed in range(11)], 2.0))


def test_outcomes_on_other_data_with_the_same_labels_are_not_paired() -> None:
    hits = [True] * 60 + [False] * 40
    ours, same, other = (Accuracy.of(hits, "labels", data) for data in ("one", "one", "another"))
    kinds = [
        of_seed(1, headline_acc=0.6, accuracy=ours, control=Control(control)).to_dict()["margin_interval"]["kind"]
        for control in (same, replace(same, data=None), other)
    ]
    assert [kind.partition(" ")[0].strip(",") for kind in kinds] == ["paired", "paired", "binomial"]
