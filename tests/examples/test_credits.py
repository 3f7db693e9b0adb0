"""The credit that each rule gives is the one by which it learns, and comes back from its checkpoint."""

from __future__ import annotations

import pytest
import torch
import train
from methods import METHODS, credit
from methods.loop import Training

from pytest_fadiag import AuditError
from pytest_fadiag.load.checkpoints import load_checkpoint
from pytest_fadiag.load.networks import build_network


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_learns_by_the_credit_that_it_gives(make_rule, batch, method):
    """The gradient of a bias that is added to a state is the mean credit at that state."""
    rule = make_rule(method, normalize_credit=False, beta=1e-4)
    x, y = batch
    credits = [a.mean(0) for a in rule.credit(x, y)]
    rule.net.zero_grad()
    rule.backward(x, y)
    learned = [rule.net.embed.bias.grad, *(block.fc2.bias.grad for block in rule.net.blocks)]
    assert len(credits) == 4
    for block, a, gradient in zip([None, *rule.net.blocks], credits, learned, strict=True):
        whole = 0.0 if block is None else float(torch.cat([p.grad.flatten() for p in block.parameters()]).norm())
        clipped = whole > 1 - 1e-6 and method in ("dfa", "state-bridge", "credit-bridge")
        factor = float(gradient.norm() / a.norm()) if clipped else 1.0
        assert 0 < factor <= 1
        torch.testing.assert_close(gradient, factor * a, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_credit_leaves_no_gradient_behind_and_needs_no_parameter_that_requires_one(make_rule, batch, method):
    rule = make_rule(method)
    before = [a.clone() for a in rule.credit(*batch)]
    assert all(p.grad is None for p in rule.net.parameters())
    rule.net.requires_grad_(False)
    for a, again in zip(before, rule.credit(*batch), strict=True):
        torch.testing.assert_close(again, a)


@pytest.fixture
def trained(fashion, tmp_path):
    def made(*options):
        small = ["--d", "8", "--blocks", "2", "--epochs", "2", "--lr", "0.01"]
        settings, _ = train.settings_from(["--data", fashion, "--out", str(tmp_path / "net.pt"), *small, *options])
        training = Training(settings)
        training.run()
        return training, torch.load(settings.out, weights_only=True)

    return made


@pytest.mark.parametrize("options", [*[(method,) for method in METHODS], ("dfa", "--lam", "1e-2")], ids="".join)
def test_the_credit_of_a_checkpoint_is_that_of_the_rule_that_was_trained(trained, options):
    training, content = trained("--method", *options)
    x, y = training.samples.test_x[:50], training.samples.test_y[:50]
    network = build_network(load_checkpoint(training.settings.out))
    ours = credit(network, x, y, content)
    assert len(ours) == 3
    for a, expected in zip(ours, training.rule.credit(x, y), strict=True):
        assert a.shape == (50, 8)
        torch.testing.assert_close(a, expected)


@pytest.mark.parametrize(
    ("method", "missing"), [("fa", "Bs"), ("dfa", "Bs"), ("state-bridge", "bridge"), ("credit-bridge", "bridge")]
)
def test_credit_that_was_not_saved_is_refused_and_never_drawn_again(trained, method, missing):
    training, content = trained("--method", method)
    del content[missing]
    with pytest.raises(AuditError, match="feedback that was not saved" if missing == "Bs" else "holds no bridge"):
        credit(training.net, training.samples.test_x[:4], training.samples.test_y[:4], content)


def test_a_rule_that_is_none_of_these_is_named(trained):
    training, content = trained("--method", "bp")
    content["config"]["method"] = "hebb"
    with pytest.raises(AuditError, match="no rule of examples/methods is called 'hebb'"):
        credit(training.net, training.samples.test_x[:4], training.samples.test_y[:4], content)


def test_a_control_saves_no_bridge(trained):
    assert "bridge" not in trained("--method", "state-bridge", "--frozen")[1]


def test_a_nudge_that_does_not_settle_is_an_error_and_no_credit(trained, monkeypatch):
    training, content = trained("--method", "ep")
    monkeypatch.setattr("methods.ep.relax.__kwdefaults__", {"tolerance": 1e-3, "sweeps": 1})
    with pytest.raises(AuditError, match="have not settled after 1 sweeps"):
        credit(training.net, training.samples.test_x[:4], training.samples.test_y[:4], content)
