"""The quantile of Student's t against closed forms and the integral of its density."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import pytest

from pytest_fadiag.judge.student_t import t95


def density(t: np.ndarray, df: float) -> np.ndarray:
    scale = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    return np.exp(scale - (df + 1) / 2 * np.log1p(t**2 / df))


def within(t: float, df: float) -> float:
    """The probability of a size up to t, by Simpson's rule in s of t = sinh s, where a heavy tail is smooth too."""
    s = np.linspace(0, math.asinh(t), 40_001)
    values = 2 * density(np.sinh(s), df) * np.cosh(s)
    return float((s[1] - s[0]) / 3 * (values[0] + 4 * values[1::2].sum() + 2 * values[2:-1:2].sum() + values[-1]))


@pytest.mark.parametrize(
    ("df", "quantile"),
    [
        (1, math.tan(0.475 * math.pi)),
        (2, 0.95 * math.sqrt(2 / (1 - 0.95**2))),
        (4, 2 * math.sqrt(math.cos(math.acos(math.sqrt(0.0975)) / 3) / math.sqrt(0.0975) - 1)),
    ],
)
def test_whole_degrees_of_freedom_follow_their_closed_forms(df: int, quantile: float) -> None:
    assert t95(df) == pytest.approx(quantile, abs=1e-9)


@pytest.mark.parametrize(
    "df", [0.02, 0.1, 0.37, 0.9, 1.5, 2.4527, 2.99, 7.95, 12.5, 22.149, 29.9, 30, 30.1, 63.2, 512.5, 9_999, 1e5]
)
def test_the_density_has_95_percent_within_it(df: float) -> None:
    t = t95(df)
    missed = (within(t, df) - 0.95) / (2 * float(density(np.array(t), df)))
    assert abs(missed) <= 1e-7 * max(1.0, t), "as an error of t"


def test_with_endless_degrees_of_freedom_it_is_the_normal_quantile_and_with_hardly_any_it_is_infinite() -> None:
    assert t95(1e12) == pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-10)
    assert t95(1e-9) == math.inf


def test_it_falls_with_the_degrees_of_freedom() -> None:
    quantiles = [t95(df) for df in np.geomspace(0.01, 1e6, 500)]
    assert all(before > after for before, after in pairwise(quantiles))
