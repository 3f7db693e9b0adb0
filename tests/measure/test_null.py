"""The null of Γ: signed permutations of the features, one for all samples and tokens."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_fadiag.measure.null import SignedPermutations


def units(*shape, seed=0):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values / values.flatten(1).norm(dim=1).view(-1, *[1] * (len(shape) - 1))


@pytest.mark.parametrize("tokens", [1, 5])
@pytest.mark.parametrize("samples", [3, 700])
def test_each_draw_is_the_cosine_with_the_features_permuted_and_their_signs_changed(tokens, samples):
    a, g = units(samples, tokens, 12), units(samples, tokens, 12, seed=1)
    null = SignedPermutations(12, 7, a.device, draws=20)
    cosines = null.cosines(a, g)
    assert cosines.shape == (20, samples)
    for draw, order, signs in zip(cosines, null.order, null.signs, strict=True):
        assert sorted(order.tolist()) == list(range(12))
        torch.testing.assert_close(draw.double(), (a[:, :, order] * signs * g).sum((1, 2)), atol=1e-6, rtol=0)


def test_draws_follow_from_the_seed_and_differ():
    first, again, other = (SignedPermutations(30, seed, torch.device("cpu")) for seed in (1, 1, 2))
    assert torch.equal(first.order, again.order)
    assert torch.equal(first.signs, again.signs)
    assert not torch.equal(first.order, other.order)
    assert len({tuple(order.tolist()) for order in first.order}) == 200
    assert first.signs.float().mean().abs() < 0.05


def test_for_gaussian_feedback_the_null_is_as_wide_as_that_of_fresh_matrices():
    """What makes it a null: e Bᵀ lies in few dimensions, so that dealing credits to other samples would be far too narrow."""
    generator = torch.Generator().manual_seed(3)
    e = torch.randn(400, 6, generator=generator, dtype=torch.float64)
    g = e @ torch.randn(6, 40, generator=generator, dtype=torch.float64)
    credits = [e @ torch.randn(6, 40, generator=generator, dtype=torch.float64) for _ in range(200)]

    def gamma(a):
        return float(((a * g).sum(1) / (a.norm(dim=1) * g.norm(dim=1))).median())

    fresh = torch.tensor([gamma(a) for a in credits])
    unit = [rows / rows.norm(dim=1, keepdim=True) for rows in (credits[0], g)]
    null = SignedPermutations(40, 0, g.device).cosines(*(rows.unsqueeze(1) for rows in unit)).median(1).values
    dealt = torch.tensor([gamma(credits[0][torch.randperm(400, generator=generator)]) for _ in range(200)])
    assert float(null.std()) == pytest.approx(float(fresh.std()), rel=0.25)
    assert abs(float(null.mean())) < 4 * float(fresh.std()) / math.sqrt(200)
    assert float(dealt.std()) < float(fresh.std()) / 3
