"""The examples: rules give the credit they learn by, training runs and resumes, recipes parse."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pytest_fadiag import ResidualMLP, hookspecs
from pytest_fadiag.auditor import Auditor
from pytest_fadiag.hooks import Registry
from pytest_fadiag.judge.diagnostics import select
from pytest_fadiag.judge.report import Report
from pytest_fadiag.load.setup import Setup
from pytest_fadiag.show.audit import Audit, Row

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "extension")]

import train  # noqa: E402
from fadiag_rank import hooks  # noqa: E402
from methods import METHODS, credit  # noqa: E402
from methods.loop import Training  # noqa: E402
from methods.rule import LearningRule  # noqa: E402
from methods.settings import Settings  # noqa: E402
from methods.streams import initialise, streams  # noqa: E402

GENERATOR = torch.Generator().manual_seed(5)
X = torch.randn(16, 9, generator=GENERATOR, dtype=torch.float64)
Y = torch.randint(0, 4, (16,), generator=GENERATOR)


def make_rule(method: str, **settings: Any) -> LearningRule:
    """A learning rule on a small network in float64, with branches strong enough to matter."""
    net, own = ResidualMLP(9, 6, 3, 4, mlp_ratio=2), streams(1)
    initialise(net, own["initialisation"])
    for block in net.blocks:
        block.fc2.weight.data *= 3
    made = Settings(method, "", Path("unused"), seed=1, d=6, blocks=3, **settings)
    return METHODS[method](net.double(), made, own)


def gradients(net: ResidualMLP) -> list[Tensor]:
    """∂ℓ_i/∂h_0 … ∂ℓ_i/∂h_L of every sample."""
    states = [net.embed(X)]
    for block in net.blocks:
        states.append(states[-1] + block(states[-1]))
    loss = F.cross_entropy(net.out_head(net.out_ln(states[-1])), Y, reduction="sum")
    return list(torch.autograd.grad(loss, states))


@pytest.mark.parametrize("method", METHODS)
def test_a_rule_learns_by_the_credit_that_it_gives(method: str) -> None:
    """The gradient of a bias that is added to a state is the mean credit at that state."""
    rule = make_rule(method, normalize_credit=False, beta=1e-4)
    credits = [a.mean(0) for a in rule.credit(X, Y)]
    assert all(p.grad is None for p in rule.net.parameters())
    rule.backward(X, Y)
    learned = [rule.net.embed.bias.grad, *(block.fc2.bias.grad for block in rule.net.blocks)]
    for a, gradient in zip(credits, learned, strict=True):
        factor = min(1.0, float(gradient.norm() / a.norm()))  # blocks with local losses are clipped
        torch.testing.assert_close(gradient, factor * a, rtol=2e-3, atol=1e-6)


def test_ep_at_equilibrium_gives_the_gradient_and_so_does_fa_with_transported_weights() -> None:
    for a, g in zip(
        (rule := make_rule("ep", beta=1e-4)).credit(X, Y), gradients(rule.net), strict=True
    ):
        torch.testing.assert_close(a, g, rtol=1e-3, atol=1e-6)
    rule = make_rule("fa")
    weights = [linear.weight for block in rule.net.blocks for linear in (block.fc1, block.fc2)]
    rule.feedback = [weight.detach() for weight in (*weights, rule.net.out_head.weight)]
    for a, g in zip(rule.credit(X, Y), gradients(rule.net), strict=True):
        torch.testing.assert_close(a, g)


def test_dfa_projects_the_output_error() -> None:
    rule = make_rule("dfa")
    error = rule.net(X).softmax(1) - F.one_hot(Y, 4)
    for a, B in zip(rule.credit(X, Y)[1:], rule.feedback, strict=True):
        torch.testing.assert_close(F.normalize(a), F.normalize(error @ B.T), rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="session")
def fashion(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Images of 4×4 pixels that are bright in a third of the picture, which is the class."""
    root = tmp_path_factory.mktemp("fashion")
    for part, n in (("train", 300), ("t10k", 256)):
        generator = np.random.default_rng(n)
        labels = generator.integers(0, 3, n)
        images = generator.integers(0, 120, (n, 4, 4))
        images[np.arange(n), labels] += 130
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            packed = gzip.compress(header + array.astype(np.uint8).tobytes())
            (root / f"{part}-{name}-ubyte.gz").write_bytes(packed)
    return f"fashion-mnist:{root}"


@pytest.fixture
def run(fashion: str, tmp_path: Path) -> Callable[..., Path]:
    """Train by the command line; the checkpoint's path is returned."""

    def ran(method: str, name: str = "net", code: int = 0, epochs: int = 2) -> Path:
        out = tmp_path / f"{name}.pt"
        words = f"--method {method} --data {fashion} --out {out} --d 8 --blocks 2 --lr 0.01"
        assert train.main([*words.split(), "--epochs", str(epochs)]) == code
        return out

    return ran


@pytest.mark.parametrize("method", METHODS)
def test_a_checkpoint_holds_the_credit_of_its_rule(method: str, run: Callable[..., Path]) -> None:
    content = torch.load(run(method), weights_only=True)
    net = ResidualMLP(16, 8, 2, 3)
    net.load_state_dict(content["state_dict"])
    x, y = torch.randn(5, 1, 4, 4), torch.arange(5) % 3
    assert [a.shape for a in credit(net, x, y, content)] == [(5, 8)] * 3
    assert content["config"]["method"] == method and 0 < content["test_acc"] <= 1


def test_dfa_learns_and_an_interrupted_run_ends_in_the_same_bits(
    run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run("dfa", "whole", epochs=8)
    assert torch.load(whole, weights_only=True)["test_acc"] > 0.7
    real = Training._train_epoch
    with monkeypatch.context() as patch:

        def interrupted(self: Training, progress: Any) -> Any:
            if self.epoch == 3:
                raise KeyboardInterrupt
            return real(self, progress)

        patch.setattr(Training, "_train_epoch", interrupted)
        run("dfa", "resumed", code=130, epochs=8)
    resumed = run("dfa", "resumed", epochs=8)
    assert resumed.read_bytes() == whole.read_bytes()
    logs = [Path(f"{path}.log.jsonl").read_bytes() for path in (whole, resumed)]
    assert logs[0] == logs[1]


def test_the_extension_adds_a_diagnostic_with_a_metric_a_format_data_and_an_output(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    net = ResidualMLP(4, 6, 2, 3)
    with (tmp_path / "net_s1.weights").open("wb") as file:
        np.savez(file, **{k: v.numpy() for k, v in net.state_dict().items()})
    x, y = torch.randn(1280, 4), torch.arange(1280) % 3
    np.savetxt(tmp_path / "test.csv", torch.cat([x, y[:, None]], 1), delimiter=",")
    manager = pluggy.PluginManager("pytest")
    manager.add_hookspecs(hookspecs)
    mark = pluggy.HookimplMarker("pytest")
    for name in [name for name in vars(hooks) if name.startswith("pytest_fadiag_")]:
        mark(getattr(hooks, name))
    manager.register(hooks)
    registry = Registry(manager)
    try:
        auditor = Auditor(Setup(data="csv:test.csv", base=tmp_path), registry=registry)
        report: Report = auditor.report(
            tmp_path / "net_s1.weights", diagnostics=select("a,effective-rank")
        )
        finding = report.finding("effective-rank")
        state = np.cov(net.embed(x).detach().double().numpy().T, bias=True)
        expected = np.trace(state) ** 2 / np.square(state).sum()
        assert report.extra["rank"]["effective_ranks"][0] == pytest.approx(expected, rel=1e-4)
        assert not finding.fired and "effective rank of h_L" in finding.headline
        audit = Audit((Row("net_s1.weights", "net", 1, report),))
        registry.outputs()["csv"].write(audit, tmp_path / "audit.csv")
        assert "net_s1.weights,net,1,," in (tmp_path / "audit.csv").read_text()
    finally:
        registry.close()


@pytest.mark.parametrize(
    "script", sorted((EXAMPLES / "recipes").glob("*.sh")), ids=lambda p: p.name
)
def test_a_recipe_is_a_script_that_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
