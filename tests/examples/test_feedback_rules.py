"""FA and DFA against updates derived by hand, without autograd."""

from __future__ import annotations

import math

import pytest
import torch
from methods.rule import output_error
from torch.nn import functional as F


def gelu_slope(z):
    return 0.5 * (1 + torch.erf(z / math.sqrt(2))) + z * torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)


def ln_forward(ln, h):
    deviation = h - h.mean(1, keepdim=True)
    sigma = (deviation.square().mean(1, keepdim=True) + ln.eps).sqrt()
    return deviation / sigma, sigma


def ln_backward(ln, unit, sigma, delta, gradients, name):
    gradients[f"{name}.weight"] = (delta * unit).sum(0)
    gradients[f"{name}.bias"] = delta.sum(0)
    inner = delta * ln.weight
    return (inner - inner.mean(1, keepdim=True) - unit * (inner * unit).mean(1, keepdim=True)) / sigma


def linear(gradients, name, delta, a):
    gradients[f"{name}.weight"], gradients[f"{name}.bias"] = delta.T @ a, delta.sum(0)


class Block:
    """One block's forward pass, and the backward pass of a δ at its output through given matrices."""

    def __init__(self, block, h):
        self.block = block
        self.unit, self.sigma = ln_forward(block.ln, h)
        self.normed = self.unit * block.ln.weight + block.ln.bias
        self.z = self.normed @ block.fc1.weight.T + block.fc1.bias
        self.active = self.z * 0.5 * (1 + torch.erf(self.z / math.sqrt(2)))
        self.f = self.active @ block.fc2.weight.T + block.fc2.bias

    def backward(self, delta, B1, B2, gradients, name):
        linear(gradients, f"{name}.fc2", delta, self.active)
        delta_z = (delta @ B2) * gelu_slope(self.z)
        linear(gradients, f"{name}.fc1", delta_z, self.normed)
        return ln_backward(self.block.ln, self.unit, self.sigma, delta_z @ B1, gradients, f"{name}.ln")


def run_forward(net, x):
    h, blocks = x @ net.embed.weight.T + net.embed.bias, []
    for block in net.blocks:
        blocks.append(Block(block, h))
        h = h + blocks[-1].f
    unit, sigma = ln_forward(net.out_ln, h)
    normed = unit * net.out_ln.weight + net.out_ln.bias
    logits = normed @ net.out_head.weight.T + net.out_head.bias
    return blocks, unit, sigma, normed, logits


@torch.no_grad()
def fa_by_hand(net, Bs, x, y):
    blocks, unit, sigma, normed, logits = run_forward(net, x)
    gradients = {}
    delta = (logits.softmax(1) - F.one_hot(y, logits.shape[1])) / len(y)
    linear(gradients, "out_head", delta, normed)
    delta = ln_backward(net.out_ln, unit, sigma, delta @ Bs[-1], gradients, "out_ln")
    for number in reversed(range(len(blocks))):
        B1, B2 = Bs[2 * number : 2 * number + 2]
        delta = delta + blocks[number].backward(delta, B1, B2, gradients, f"blocks.{number}")
    linear(gradients, "embed", delta, x)
    return gradients


@torch.no_grad()
def dfa_by_hand(net, Bs, x, y, lam, normalise):
    blocks, unit, sigma, normed, logits = run_forward(net, x)
    gradients, n = {}, len(y)
    e = logits.softmax(1) - F.one_hot(y, logits.shape[1])
    linear(gradients, "out_head", e / n, normed)
    ln_backward(net.out_ln, unit, sigma, e @ net.out_head.weight / n, gradients, "out_ln")
    credits = [e @ B.T for B in Bs]
    if normalise:
        credits = [a / ((a**2).mean(1, keepdim=True) ** 0.5 + 1e-6) for a in credits]
    linear(gradients, "embed", credits[0] / n, x)
    for number, block in enumerate(blocks):
        own = {}
        delta = (credits[number] + 2 * lam * block.f) / n
        block.backward(delta, net.blocks[number].fc1.weight, net.blocks[number].fc2.weight, own, f"blocks.{number}")
        norm = math.sqrt(sum(float((g**2).sum()) for g in own.values()))
        gradients |= {name: g * min(1.0, 1 / (norm + 1e-6)) for name, g in own.items()}
    return gradients


def gradients_of(rule, x, y):
    rule.net.zero_grad()
    rule.backward(x, y)
    return {name: parameter.grad for name, parameter in rule.net.named_parameters()}


def assert_same(ours, by_hand):
    assert set(ours) == set(by_hand)
    for name, gradient in ours.items():
        torch.testing.assert_close(
            gradient, by_hand[name], rtol=1e-9, atol=1e-12, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_the_hand_derivation_with_true_weights_is_backpropagation(make_rule, batch):
    rule = make_rule("bp")
    weights = [linear.weight for block in rule.net.blocks for linear in (block.fc1, block.fc2)] + [rule.net.out_head.weight]
    assert_same(gradients_of(rule, *batch), fa_by_hand(rule.net, weights, *batch))


def test_fa_sends_the_error_back_through_its_fixed_matrices(make_rule, batch):
    rule = make_rule("fa")
    assert_same(gradients_of(rule, *batch), fa_by_hand(rule.net, rule.feedback, *batch))


def test_fa_differs_from_backpropagation_below_the_head(make_rule, batch):
    fa, bp = (gradients_of(make_rule(method), *batch) for method in ("fa", "bp"))
    same = {name for name in fa if torch.allclose(fa[name], bp[name])}
    assert same == {"out_head.weight", "out_head.bias"}


def test_fa_uses_one_matrix_of_the_weights_shape_for_each_linear_above_the_embedding(make_rule):
    rule = make_rule("fa", blocks=2)
    assert [tuple(B.shape) for B in rule.feedback] == [(12, 6), (6, 12), (12, 6), (6, 12), (4, 6)]
    assert len({B.flatten()[0].item() for B in rule.feedback}) == 5


@pytest.mark.parametrize("lam", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("normalise", [True, False])
def test_dfa_gives_each_block_the_output_error_through_its_own_matrix(make_rule, batch, lam, normalise):
    rule = make_rule("dfa", lam=lam, normalize_credit=normalise)
    assert_same(gradients_of(rule, *batch), dfa_by_hand(rule.net, rule.feedback, *batch, lam, normalise))


def test_dfa_clips_each_block_by_itself_and_not_the_embedding(make_rule, batch):
    rule = make_rule("dfa", lam=100.0)
    gradients = gradients_of(rule, batch[0] * 30, batch[1])
    for number in range(3):
        own = torch.cat([g.flatten() for name, g in gradients.items() if name.startswith(f"blocks.{number}.")])
        assert own.norm().item() == pytest.approx(1, abs=1e-5)
    assert gradients["embed.weight"].norm() > 1.5


def test_dfa_matrices_are_standard_normal_over_the_root_of_the_classes(make_rule):
    B = make_rule("dfa", d=1000, blocks=1).feedback[0]
    assert B.shape == (1000, 4)
    assert B.std().item() == pytest.approx(1 / math.sqrt(4), rel=0.03)


def test_one_optimiser_over_everything_equals_one_for_each_block_with_the_head_stepped_first(make_rule, batch):
    x, y = batch
    together, apart = make_rule("dfa", lam=0.01), make_rule("dfa", lam=0.01)
    optimiser = torch.optim.AdamW(together.net.parameters(), lr=1e-3, weight_decay=0.01)
    net = apart.net
    parts = [[*net.out_ln.parameters(), *net.out_head.parameters()]]
    parts += [list(block.parameters()) for block in net.blocks] + [list(net.embed.parameters())]
    optimisers = [torch.optim.AdamW(part, lr=1e-3, weight_decay=0.01) for part in parts]
    for _ in range(5):
        optimiser.zero_grad()
        together.backward(x, y)
        optimiser.step()
        published_dfa_step(net, apart.feedback, x, y, 0.01, optimisers)
    for ours, theirs in zip(together.net.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def published_dfa_step(net, Bs, x, y, lam, optimisers):
    """PROTOCOL's recipe word for word: the head steps first, e and the states come from before its step."""
    head, *blocks, embed = optimisers
    hidden = net.hidden(x)
    logits = net(x).detach()
    e = output_error(logits, y)
    head.zero_grad()
    F.cross_entropy(net.out_head(net.out_ln(hidden[-1])), y).backward()
    head.step()
    for number, (block, optimiser) in enumerate(zip(net.blocks, blocks, strict=True)):
        a = e @ Bs[number].T
        a = a / (a.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)
        f = block(hidden[number])
        optimiser.zero_grad()
        ((f * a).sum(1).mean() + lam * f.pow(2).sum(1).mean()).backward()
        torch.nn.utils.clip_grad_norm_(block.parameters(), 1.0)
        optimiser.step()
    a = e @ Bs[0].T
    a = a / (a.pow(2).mean(-1, keepdim=True).sqrt() + 1e-6)
    embed.zero_grad()
    (net.embed(x) * a).sum(1).mean().backward()
    embed.step()


def test_a_network_without_blocks_is_taught_by_one_matrix(make_rule, batch):
    rule = make_rule("dfa", blocks=0, shallow=True)
    assert len(rule.feedback) == 1
    assert_same(gradients_of(rule, *batch), dfa_by_hand(rule.net, rule.feedback, *batch, 0.0, True))
