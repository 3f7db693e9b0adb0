"""Equilibrium propagation against the BP gradient and against its own energy."""

from __future__ import annotations

import pytest
import torch
from methods.ep import TOLERANCE, NotAtEquilibrium, relax
from torch.nn import functional as F

BETA = 1e-3


def bp_gradients(net, x, y):
    logits, states = net(x, return_hidden=True)
    return torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states)


def cosines(a, b):
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))


def assert_is_the_gradient(credits, gradients):
    for layer, (a, g) in enumerate(zip(credits, gradients, strict=True)):
        assert cosines(a, g).min() > 0.999, f"direction at layer {layer}"
        assert (a.norm(dim=1) / g.norm(dim=1) - 1).abs().max() < 0.02, f"magnitude at layer {layer}"


def energy_errors(net, embedded, h):
    """ε_0 … ε_L, from the states alone."""
    return [h[0] - embedded] + [h[k + 1] - h[k] - block(h[k]) for k, block in enumerate(net.blocks)]


def test_credit_is_the_bp_gradient_in_direction_and_size_at_every_layer(make_rule, batch):
    rule = make_rule("ep", beta=BETA)
    assert_is_the_gradient(rule.credit(*batch), bp_gradients(rule.net, *batch))


def test_credit_is_the_bp_gradient_in_single_precision_too(make_rule, batch):
    rule = make_rule("ep", beta=3e-3)
    rule.net.float()
    x, y = batch[0].float(), batch[1]
    assert_is_the_gradient(rule.credit(x, y), bp_gradients(rule.net, x, y))


def test_the_states_are_stationary_points_of_energy_plus_nudge(make_rule, batch):
    net = make_rule("ep").net
    x, y = batch
    embedded = net.embed(x).detach()
    settled = relax(net, embedded, y, BETA, tolerance=1e-8)
    h = [state.clone().requires_grad_() for state in settled.h]
    energy = sum(error.square().sum() / 2 for error in energy_errors(net, embedded.repeat(2, 1), h))
    losses = F.cross_entropy(net.out_head(net.out_ln(h[-1])), y.repeat(2), reduction="none")
    slopes = torch.autograd.grad(energy + (settled.beta[:, 0] * losses).sum(), h)
    assert settled.residual <= 1e-8
    for slope, error in zip(slopes, settled.errors, strict=True):
        assert (slope.norm(dim=1) / error.norm(dim=1)).max() < 1e-7


def test_the_update_is_the_difference_of_the_energy_gradients_of_both_phases(make_rule, batch):
    rule = make_rule("ep", beta=BETA)
    net, (x, y) = rule.net, batch
    rule.backward(x, y)
    settled = relax(net, net.embed(x), y, BETA)
    sign = settled.beta.sign()[:, 0]
    errors = energy_errors(net, net.embed(x).repeat(2, 1), settled.h)
    energy = sum((sign * error.square().sum(1)).sum() / 2 for error in errors)
    energy = energy / (2 * BETA * len(y))
    parameters = dict(net.named_parameters())
    inner = {name: p for name, p in parameters.items() if name.startswith(("embed", "blocks"))}
    for name, expected in zip(inner, torch.autograd.grad(energy, list(inner.values())), strict=True):
        torch.testing.assert_close(parameters[name].grad, expected, rtol=1e-6, atol=1e-9)
    free = net.hidden(x)[-1]
    head = [name for name in parameters if name.startswith("out_")]
    loss = F.cross_entropy(net.out_head(net.out_ln(free)), y)
    for name, expected in zip(head, torch.autograd.grad(loss, [parameters[n] for n in head]), strict=True):
        torch.testing.assert_close(parameters[name].grad, expected)


@pytest.mark.parametrize("sweeps", [1, 2])
def test_a_relaxation_cut_short_is_refused(make_rule, batch, sweeps):
    net = make_rule("ep").net
    with pytest.raises(NotAtEquilibrium, match=f"not settled after {sweeps} sweeps: residual"):
        relax(net, net.embed(batch[0]), batch[1], 0.05, sweeps=sweeps)


def test_an_unsettled_nudge_has_the_right_direction_and_a_fraction_of_the_size(make_rule, batch):
    """Why the residual is checked: the cosine alone sees nothing."""
    net, (x, y) = make_rule("ep").net, batch
    embedded = net.embed(x).detach()
    h = [state.clone() for state in net.hidden(x)]
    for _ in range(20):
        h = [state.requires_grad_() for state in h]
        energy = sum(error.square().sum() / 2 for error in energy_errors(net, embedded, h))
        loss = F.cross_entropy(net.out_head(net.out_ln(h[-1])), y, reduction="sum")
        slopes = torch.autograd.grad(energy + BETA * loss, h)
        h = [(state - 0.01 * slope).detach() for state, slope in zip(h, slopes, strict=True)]
    credit = -energy_errors(net, embedded, h)[1].detach() / BETA
    residual = slopes[1].norm(dim=1) / (BETA * credit.norm(dim=1))
    gradient = bp_gradients(net, x, y)[1]
    assert cosines(credit, gradient).median() > 0.98
    assert (credit.norm(dim=1) / gradient.norm(dim=1)).max() < 0.05
    assert residual.min() > 100 * TOLERANCE


def test_a_sample_too_sharply_curved_for_the_common_nudge_is_nudged_less_in_both_phases(make_rule, batch):
    rule = make_rule("ep", beta=3e-3)
    net, (x, y) = rule.net, batch
    net.embed.bias.data.zero_()
    x[3] *= 0.01
    settled = relax(net, net.embed(x), y, 3e-3)
    beta = settled.beta.view(2, -1)
    assert torch.equal(beta[0], -beta[1])
    assert beta[0, 3] < 3e-3
    assert settled.residual <= 1e-3
    a, g = rule.credit(x, y), bp_gradients(net, x, y)
    assert all(cosines(ours, true)[3] > 0.999 for ours, true in zip(a, g, strict=True))


def test_a_frozen_control_teaches_the_embedding_alike_and_leaves_the_blocks_without_gradient(make_rule, batch):
    free, frozen = make_rule("ep"), make_rule("ep", frozen=True)
    free.backward(*batch)
    frozen.backward(*batch)
    torch.testing.assert_close(frozen.net.embed.weight.grad, free.net.embed.weight.grad)
    assert all(parameter.grad is None for parameter in frozen.net.blocks.parameters())
