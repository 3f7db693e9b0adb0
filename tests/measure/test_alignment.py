"""``alignment``: one cosine per sample, at any size, signed, and undefined rather than invented."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.credit import alignment


def exact_cosine(a: Tensor, b: Tensor) -> float:
    """In rational arithmetic up to the root."""
    rows = [[Fraction(float(value)) for value in row] for row in (a, b)]
    pairs = ((rows[0], rows[1]), (rows[0], rows[0]), (rows[1], rows[1]))
    inner, aa, bb = (sum(x * y for x, y in zip(u, v, strict=True)) for u, v in pairs)
    return math.sqrt(inner * inner / (aa * bb)) * (1 if inner > 0 else -1)


def vectors(n: int = 7, d: int = 5, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2)]


@given(st.integers(-200, 200), st.integers(-200, 200), st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_cosines_are_those_of_exact_arithmetic_whatever_the_size(a: int, g: int, seed: int) -> None:
    one, other = (10.0**size * rows for size, rows in zip((a, g), vectors(seed=seed), strict=True))
    for value, *rows in zip(alignment(one, other).cosines.tolist(), one, other, strict=True):
        assert value == pytest.approx(exact_cosine(*rows), abs=1e-14)


def test_float32_neither_underflows_nor_meets_an_epsilon() -> None:
    subnormal = torch.tensor([[3e-42, 4e-42]])
    assert alignment(torch.tensor([[3.0, 4.0]]), subnormal).median == pytest.approx(1, abs=1e-4)


def test_zero_vectors_are_undefined_left_out_and_counted() -> None:
    a, g = vectors(n=4)
    a[1], g[2] = 0, 0
    ours, kept = alignment(a, g), alignment(a[[0, 3]], g[[0, 3]])
    assert ours.cosines.isnan().tolist() == [False, True, True, False] and ours.undefined == 2
    assert (ours.median, ours.magnitude) == (kept.median, kept.magnitude)
    both = alignment(torch.zeros(3, 2), torch.zeros(3, 2))
    assert both.undefined == 3 and math.isnan(both.median) and math.isnan(both.magnitude)


def test_median_magnitude_and_sign() -> None:
    g = torch.tensor([[1.0, 0.0]] * 4)
    angles = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    a = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    assert alignment(a, g).median == pytest.approx((math.cos(0.5) + math.cos(1.0)) / 2)
    assert alignment(a, g).magnitude == pytest.approx(3)
    assert alignment(-a, a).cosines.tolist() == pytest.approx([-1.0] * 4)


def test_all_tokens_of_a_sample_are_one_vector_and_arrays_are_taken_too() -> None:
    a, g = (rows.view(3, 5, 2, 2) for rows in vectors(n=3, d=20))
    assert (
        alignment(a, g).cosines.tolist() == alignment(a.flatten(1), g.flatten(1)).cosines.tolist()
    )
    assert alignment(np.eye(2), [[1.0, 0], [0, -3]]).cosines.tolist() == [1, -1]


@pytest.mark.parametrize(
    ("credit", "gradient", "message"),
    [
        (
            torch.ones(3, 4),
            torch.ones(3, 5),
            r"credit has shape \(3, 4\) and the gradient \(3, 5\)",
        ),
        (torch.ones(3), torch.ones(3), "samples first"),
        (torch.ones(3, 4).long(), torch.ones(3, 4), "the credit has shape .* dtype torch.int64"),
        (
            torch.ones(2, 2),
            torch.tensor([[math.nan, 1], [1, 1]]),
            "gradient is NaN or inf for 1 of 2",
        ),
        (torch.ones(0, 4), torch.ones(0, 4), "samples first"),
    ],
)
def test_what_has_no_cosine_is_refused(credit: Any, gradient: Any, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        alignment(credit, gradient)
