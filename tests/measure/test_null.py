"""The null of Γ: signed permutations of the features, one for all samples and tokens."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from pytest_fadiag.measure.credit import SignedPermutations


def units(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return values / values.flatten(1).norm(dim=1).view(-1, *[1] * (len(shape) - 1))


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("samples", [0, 3, 700])
def test_each_draw_is_the_cosine_with_features_permuted_and_signs_changed(
    tokens: int, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fadiag.measure.credit.CHUNK", 100_000)  # in several parts
    a, g = units(samples, tokens, 12), units(samples, tokens, 12, seed=1)
    null = SignedPermutations(12, 7, a.device)
    cosines = null.cosines(a, g)
    assert cosines.shape == (200, samples)
    for draw, order, signs in zip(cosines, null.order, null.signs, strict=True):
        assert sorted(order.tolist()) == list(range(12)) and set(signs.tolist()) <= {-1, 1}
        expected = (a[:, :, order] * signs * g).sum((1, 2))
        torch.testing.assert_close(draw.double(), expected, atol=1e-6, rtol=0)


def test_wide_features_are_not_handled_sample_by_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    products: list[int] = []
    multiply = Tensor.__matmul__

    def counted(one: Tensor, other: Tensor) -> Tensor:
        products.append(len(one))
        return multiply(one, other)

    monkeypatch.setattr(Tensor, "__matmul__", counted)
    a = units(56, 3, 768)
    SignedPermutations(768, 0, a.device).cosines(a, a)
    assert products == [28, 28]


def test_draws_follow_from_the_seed_and_differ() -> None:
    first, again, other = (SignedPermutations(30, s, torch.device("cpu")) for s in (1, 1, 2))
    assert torch.equal(first.order, again.order) and torch.equal(first.signs, again.signs)
    assert not torch.equal(first.order, other.order) and first.signs.mean().abs() < 0.05
    assert len({tuple(order.tolist()) for order in first.order}) == 200


def test_for_gaussian_feedback_the_null_is_as_wide_as_that_of_fresh_matrices() -> None:
    """e Bᵀ lies in few dimensions: credits of other samples would be far too narrow a null."""
    generator = torch.Generator().manual_seed(3)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    e = drawn(400, 6)
    g, credits = e @ drawn(6, 40), [e @ drawn(6, 40) for _ in range(200)]

    def gamma(a: Tensor) -> float:
        return float(((a * g).sum(1) / (a.norm(dim=1) * g.norm(dim=1))).median())

    fresh = torch.tensor([gamma(a) for a in credits])
    unit = ((rows / rows.norm(dim=1, keepdim=True)).unsqueeze(1) for rows in (credits[0], g))
    null = SignedPermutations(40, 0, g.device).cosines(*unit).median(1).values
    orders = [torch.randperm(400, generator=generator) for _ in range(200)]
    dealt = torch.tensor([gamma(credits[0][order]) for order in orders])
    assert float(null.std()) == pytest.approx(float(fresh.std()), rel=0.25)
    assert abs(float(null.mean())) < 4 * float(fresh.std()) / math.sqrt(200)
    assert float(dealt.std()) < float(fresh.std()) / 3
