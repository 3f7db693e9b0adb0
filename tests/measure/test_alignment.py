"""``alignment``: the cosine per sample against exact arithmetic, at any size, signed, and undefined rather than invented."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from pytest_fadiag import AuditError, alignment

SIZES = [(1.0, 1.0), (16.0, 4e-9), (1e9, 1e-12), (1e-20, 1e20), (1e-30, 1e-36)]


def exact_cosine(a, b):
    """In rational arithmetic up to the two roots."""
    a, b = [[Fraction(float(value)) for value in row] for row in (a, b)]
    inner, aa, bb = (sum(x * y for x, y in zip(u, v, strict=True)) for u, v in ((a, b), (a, a), (b, b)))
    return math.copysign(math.sqrt(inner * inner / (aa * bb)), inner)


def vectors(n=7, d=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(n, d, generator=generator, dtype=dtype) for _ in range(2)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("sizes", SIZES)
def test_cosines_are_those_of_exact_arithmetic_whatever_the_size(sizes, dtype):
    a, g = (size * v for size, v in zip(sizes, vectors(dtype=dtype), strict=True))
    ours = alignment(a, g)
    assert ours.cosines.dtype == torch.float64
    for value, row, other in zip(ours.cosines.tolist(), a, g, strict=True):
        assert value == pytest.approx(exact_cosine(row, other), abs=1e-14)


def test_squares_that_underflow_or_overflow_are_never_taken():
    a, g = vectors()
    expected = alignment(a, g).cosines.tolist()
    assert alignment(1e-200 * a, 1e200 * g).cosines.tolist() == pytest.approx(expected, abs=1e-14)


def test_subnormal_gradients_have_a_direction_too():
    g = torch.tensor([[3e-42, 4e-42]], dtype=torch.float32)
    assert alignment(torch.tensor([[3.0, 4.0]]), g).cosines.item() == pytest.approx(1, abs=1e-4)


def test_the_published_counterexample_of_an_epsilon_is_not_reproduced():
    a, g = torch.tensor([[1e-10, 2e-10]], dtype=torch.float64), torch.tensor([[2e-10, 1e-10]], dtype=torch.float64)
    assert alignment(a, g).cosines.item() == pytest.approx(0.8, abs=1e-15)
    assert torch.cosine_similarity(a, g).item() < 0.01


def test_the_sign_is_kept():
    a, _ = vectors()
    assert alignment(-a, a).cosines.tolist() == pytest.approx([-1.0] * 7, abs=1e-15)
    assert alignment(-a, a).median == pytest.approx(-1)


def test_a_zero_vector_is_undefined_and_left_out_and_counted():
    a, g = vectors(n=4)
    a[1], g[2] = 0, 0
    ours = alignment(a, g)
    kept = alignment(a[[0, 3]], g[[0, 3]])
    assert ours.cosines.isnan().tolist() == [False, True, True, False]
    assert (ours.undefined, ours.median, ours.magnitude) == (2, kept.median, kept.magnitude)
    assert "4 samples, 2 of them undefined" in str(ours)


def test_both_vectors_zero_is_undefined_and_never_one():
    ours = alignment(torch.zeros(3, 2), torch.zeros(3, 2))
    assert ours.undefined == 3
    assert all(math.isnan(value) for value in (ours.median, ours.magnitude, ours.quantile(0.5)))
    assert str(ours).startswith("Γ undefined")


def test_all_tokens_of_a_sample_are_one_vector():
    a, g = (v.view(3, 5, 4) for v in vectors(n=3, d=20))
    assert alignment(a, g).cosines.tolist() == alignment(a.flatten(1), g.flatten(1)).cosines.tolist()
    maps = alignment(a.view(3, 5, 2, 2), g.view(3, 5, 2, 2))
    assert maps.cosines.tolist() == alignment(a.flatten(1), g.flatten(1)).cosines.tolist()


def test_median_quantiles_and_magnitude():
    g = torch.tensor([[1.0, 0.0]] * 4)
    angles = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    a = torch.stack([angles.cos(), angles.sin()], 1) * torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    ours = alignment(a, g)
    cosines = sorted(math.cos(angle) for angle in angles.tolist())
    assert ours.median == pytest.approx((cosines[1] + cosines[2]) / 2)
    assert ours.quantile(0.25) == pytest.approx(np.quantile(cosines, 0.25))
    assert ours.magnitude == pytest.approx(3)
    assert ours.credit_norms.tolist() == pytest.approx([1, 2, 4, 8])


def test_arrays_and_lists_are_taken_too():
    assert alignment(np.eye(3), [[1.0, 0, 0], [0, 2, 0], [0, 0, -3]]).cosines.tolist() == [1, 1, -1]


@pytest.mark.parametrize(
    ("credit", "gradient", "message"),
    [
        (torch.ones(3, 4), torch.ones(3, 5), r"credit has shape \(3, 4\) and the gradient \(3, 5\)"),
        (torch.ones(3), torch.ones(3), "samples first"),
        (torch.ones(3, 4, dtype=torch.long), torch.ones(3, 4), "the credit is of dtype torch.int64"),
        (torch.ones(3, 4), torch.tensor([[math.nan] * 4] + [[1.0] * 4] * 2), "gradient is NaN or inf for 1 of 3 samples"),
        (torch.ones(0, 4), torch.ones(0, 4), "samples first"),
        ("credit", torch.ones(3, 4), "the credit is str"),
    ],
)
def test_what_has_no_cosine_is_refused(credit, gradient, message):
    with pytest.raises(AuditError, match=message):
        alignment(credit, gradient)
