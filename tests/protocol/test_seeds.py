"""The margin over seeds, against an independent bootstrap and closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_fadiag import AuditError
from pytest_fadiag.protocol.seeds import SeedVerdict, seed_margin


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
    assert "test images would" in judged.needed()
    three = seed_margin(
        [[True] * 900 + [False] * 100, [True] * 400 + [False] * 600, [True] * 700 + [False] * 300],
        [[True] * 350 + [False] * 650] * 3,
        2.0,
    )
    assert three.needed().endswith("seeds would decide")
    assert three.least_p == 0.125


def test_seeds_need_controls_and_the_same_images() -> None:
    with pytest.raises(AuditError, match="two or more seeds"):
        seed_margin([[True]], [[True]], 2.0)
    with pytest.raises(AuditError, match="different numbers of images"):
        seed_margin([[True], [True, False]], [[True], [True, False]], 2.0)
