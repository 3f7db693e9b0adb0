"""State Bridge and Credit Bridge against the objectives that they state."""

from __future__ import annotations

import math

import pytest
import torch
from methods.local import local_pass
from methods.rule import output_error, terminal_gradient
from torch.nn import functional as F


@pytest.fixture(params=["state-bridge", "credit-bridge"])
def rule(request, make_rule):
    return make_rule(request.param)


def rms(t):
    return t.square().mean().sqrt()


def bridge_input(rule, forward, layer, sample, h, e):
    """(h_l, l, e) of one sample as the net takes it, written out."""
    one_hot = F.one_hot(torch.tensor(layer), len(forward.h)).double()
    return torch.cat([h / rms(forward.h[layer]), one_hot, e[sample]])


def train_bridge(rule, forward, y, steps, objective):
    optimiser = torch.optim.AdamW(rule.bridge.parameters(), lr=3e-3)
    history = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = objective(rule.credits(forward, y))
        loss.backward(inputs=list(rule.bridge.parameters()))
        optimiser.step()
        rule.after_step()
        history.append(loss.item())
    return history


def cosine(a, b):
    return ((a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))).median().item()


def test_terminal_gradient_is_that_of_each_sample(make_rule, batch):
    net = make_rule("bp").net
    states = net(batch[0], return_hidden=True)[1]
    (expected,) = torch.autograd.grad(F.cross_entropy(net.out_head(net.out_ln(states[-1])), batch[1]) * 16, states[-1])
    torch.testing.assert_close(terminal_gradient(net, states[-1], batch[1]), expected)


def test_state_bridge_credit_is_the_transposed_jacobian_times_the_terminal_gradient(make_rule, batch):
    rule, (_, y) = make_rule("state-bridge"), batch
    forward = local_pass(rule.net, batch[0])
    credits, _ = rule.credits(forward, y)
    e, delta = output_error(forward.logits, y), terminal_gradient(rule.net, forward.h[-1], y)
    assert len(credits) == 4
    for layer, sample in [(0, 0), (2, 7), (3, 15)]:

        def predicted(h, layer=layer, sample=sample):
            return rule.bridge.mlp(bridge_input(rule, forward, layer, sample, h, e)) * rms(forward.h[-1])

        jacobian = torch.func.jacrev(predicted)(forward.h[layer][sample])
        torch.testing.assert_close(credits[layer][sample], jacobian.T @ delta[sample])


def test_state_bridge_regresses_the_last_state_from_every_state(make_rule, batch):
    rule, (_, y) = make_rule("state-bridge"), batch
    forward = local_pass(rule.net, batch[0])
    e, target = output_error(forward.logits, y), forward.h[-1] / rms(forward.h[-1])
    squares = [
        (rule.bridge.mlp(bridge_input(rule, forward, layer, i, forward.h[layer][i], e)) - target[i]).square().mean()
        for layer in range(4)
        for i in range(16)
    ]
    assert rule.credits(forward, y)[1].item() == pytest.approx(torch.stack(squares).mean().item(), rel=1e-9)
    history = train_bridge(rule, forward, y, 400, lambda made: made[1])
    assert history[-1] < 0.05 * history[0]


def test_credit_bridge_credit_is_the_slope_of_its_scalar(make_rule, batch):
    rule, (_, y) = make_rule("credit-bridge"), batch
    forward = local_pass(rule.net, batch[0])
    credits, _, _ = rule.credits(forward, y)
    e, delta = output_error(forward.logits, y), terminal_gradient(rule.net, forward.h[-1], y)
    unit = rms(delta * rms(forward.h[-1]))
    for layer, sample in [(0, 0), (2, 7), (3, 15)]:

        def value(h, layer=layer, sample=sample):
            return rule.bridge.mlp(bridge_input(rule, forward, layer, sample, h, e)).item()

        h = forward.h[layer][sample]
        steps = 1e-5 * torch.eye(6, dtype=torch.float64)
        slope = torch.tensor([(value(h + step) - value(h - step)) / 2e-5 for step in steps], dtype=torch.float64)
        torch.testing.assert_close(credits[layer][sample], slope * unit, rtol=1e-5, atol=1e-8)


def test_credit_bridge_losses_are_terminal_matching_and_agreement_with_the_noisy_slow_copy(make_rule, batch):
    rule, (_, y) = make_rule("credit-bridge"), batch
    for parameter in rule.slow.parameters():
        parameter.data += 0.1  # so that the two nets cannot be confused
    forward = local_pass(rule.net, batch[0])
    e = output_error(forward.logits, y)
    before = rule.streams["noise"].get_state()
    credits, terminal, between = rule.credits(forward, y)

    delta = terminal_gradient(rule.net, forward.h[-1], y)
    expected = (credits[-1] - delta).square().mean() / delta.square().mean()
    assert terminal.item() == pytest.approx(expected.item(), rel=1e-9)

    rule.streams["noise"].set_state(before)
    noise = torch.randn((8, 3, 16, 6), generator=rule.streams["noise"]).double()
    squares = []
    for layer in range(3):
        for i in range(16):
            here = rule.bridge.mlp(bridge_input(rule, forward, layer, i, forward.h[layer][i], e))
            above = bridge_input(rule, forward, layer + 1, i, forward.h[layer + 1][i], e).repeat(8, 1)
            above[:, :6] += 0.1 * noise[:, layer, i]
            squares.append((here - rule.slow.mlp(above).mean()).square())
    assert between.item() == pytest.approx(torch.stack(squares).mean().item(), rel=1e-9)


def test_credit_bridge_weighs_terminal_matching_by_1_and_agreement_by_a_tenth(make_rule, batch):
    rule, (x, y) = make_rule("credit-bridge"), batch
    parameters = list(rule.bridge.parameters())
    noise = rule.streams["noise"].get_state()
    _, terminal, between = rule.credits(local_pass(rule.net, x), y)
    expected = torch.autograd.grad(terminal + 0.1 * between, parameters)
    rule.streams["noise"].set_state(noise)
    rule.backward(x, y)
    for parameter, gradient in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_credit_bridge_learns_the_terminal_gradient_only_where_it_is_matched(make_rule, batch):
    results = {}
    for weight in (1.0, 0.0):
        rule = make_rule("credit-bridge", d=12)
        forward = local_pass(rule.net, batch[0])
        train_bridge(rule, forward, batch[1], 300, lambda made, weight=weight: weight * made[1] + 0.1 * made[2])
        results[weight] = cosine(rule.credits(forward, batch[1])[0][-1], terminal_gradient(rule.net, forward.h[-1], batch[1]))
    assert results[1.0] > 0.95
    assert abs(results[0.0]) < 0.5


def test_credit_bridge_slow_copy_follows_by_an_exponential_average(make_rule, batch):
    rule = make_rule("credit-bridge")
    first = [parameter.clone() for parameter in rule.slow.parameters()]
    for parameter in rule.bridge.parameters():
        parameter.data += 1
    rule.after_step()
    for slow, start in zip(rule.slow.parameters(), first, strict=True):
        torch.testing.assert_close(slow, start + (1 - 0.995))
        assert not slow.requires_grad


def test_nothing_is_propagated_through_the_blocks(rule, batch):
    forward = local_pass(rule.net, batch[0])
    noise = rule.streams["noise"].get_state()
    credits = rule.credits(forward, batch[1])[0]
    for parameter in rule.net.blocks.parameters():
        parameter.data.fill_(math.nan)
    rule.streams["noise"].set_state(noise)
    assert torch.equal(rule.credits(forward, batch[1])[0], credits)


def test_block_l_descends_along_the_credit_of_the_state_that_it_writes(rule, batch):
    x, y = batch
    forward = local_pass(rule.net, x)
    noise = rule.streams["noise"].get_state()
    credits = rule.credits(forward, y)[0]
    rule.streams["noise"].set_state(noise)
    rule.backward(x, y)
    credits = credits / (credits.square().mean(-1, keepdim=True).sqrt() + 1e-6)
    for block, h, a in zip(rule.net.blocks, forward.h[:-1], credits[1:], strict=True):
        expected = torch.autograd.grad((block(h) * a).sum() / len(y), list(block.parameters()))
        scale = min(1.0, 1 / (torch.cat([g.flatten() for g in expected]).norm().item() + 1e-6))
        for parameter, gradient in zip(block.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient * scale)
    torch.testing.assert_close(rule.net.embed.weight.grad, credits[0].T @ x / len(y))


def test_the_bridge_learns_while_the_network_does(rule, batch):
    rule.backward(*batch)
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in rule.bridge.mlp[0].parameters())
