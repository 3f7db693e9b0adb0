"""The public functions: the network stays as it was, and the report says what was given."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import pytest_fadiag
from pytest_fadiag import (
    AuditError,
    ResidualMLP,
    bp_grad_norms,
    cross_batch_direction_stability,
    diagnose,
    residual_norms,
)
from pytest_fadiag.cli import main


def data(samples: int = 1300) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 6, generator=generator)
    return [(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())]


@pytest.fixture(scope="module")
def network() -> ResidualMLP:
    torch.manual_seed(0)
    return ResidualMLP(6, 10, 3, 3)


def test_every_public_name_is_there_and_importing_the_package_imports_no_torch() -> None:
    for name in pytest_fadiag.__all__:
        assert getattr(pytest_fadiag, name) is not None
    code = "import pytest_fadiag, sys; print({'torch', 'numpy', 'msgspec'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = pytest_fadiag.nonsense


def test_the_network_is_never_touched(network: ResidualMLP) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.calls, self.seen = copy.deepcopy(network), torch.zeros(()), []
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            self.seen.append(x)
            return self.net(x)

    model = Counting().train()
    model.net.embed.weight.grad = torch.ones_like(model.net.embed.weight)
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    diagnose(model, data())
    assert model.training and not model.seen and model.net.embed.weight.requires_grad
    assert bool((model.net.embed.weight.grad == 1).all())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())


def test_the_single_quantities_are_those_of_the_report(network: ResidualMLP) -> None:
    report = diagnose(network, data(), frozen_baseline_acc=0.9)
    assert residual_norms(network, data()) == list(report.residual_norms)
    assert bp_grad_norms(network, data()) == list(report.bp_grad_norms)
    assert cross_batch_direction_stability(network, data()) == report.cross_batch_stability


def test_a_loader_with_tensors_of_its_own_gives_what_it_yields(network: ResidualMLP) -> None:
    class Loader(list[tuple[Tensor, Tensor]]):
        x, y = torch.zeros(9000, 3), torch.zeros(9000)  # of the whole set

    assert diagnose(network, Loader(data())).score == diagnose(network, data()).score


def test_what_runs_follows_from_what_is_given(network: ResidualMLP) -> None:
    def credit(model: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
        return [torch.ones(len(x), 10)] * 3

    beside_a_number = diagnose(network, data(), frozen_baseline_acc=0.9)
    alone = diagnose(network, data())
    credited = diagnose(network, data(), frozen_baseline_acc=0.9, credit=credit)
    assert beside_a_number.depth is not None
    assert not alone.finding("e").headline.startswith("not needed")
    assert "credit-alignment" in credited.diagnostics
    assert "credit-alignment" not in alone.diagnostics


def test_a_given_accuracy_replaces_the_measured_one_and_a_contradiction_is_noted(
    network: ResidualMLP,
) -> None:
    report = diagnose(network, data(), headline_acc=0.99, method_name="dfa", seed=3)
    assert (
        report.headline_acc == 0.99
        and report.seed == 3
        and report.notes.startswith("accuracy as given; 0.")
    )
    for wrong in ({"headline_acc": 34.9}, {"frozen_baseline_acc": 34.9}):
        with pytest.raises(AuditError, match="percentage"):
            diagnose(network, data(), **wrong)


@pytest.mark.parametrize("kind", ["mse", "function"])
def test_the_loss_of_a_regression_is_named_and_its_gradient_is_the_reference(
    network: ResidualMLP, kind: str
) -> None:
    x = data()[0][0]
    y = x[:, :3] * x[:, 1:4]

    def squared(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().sum(1)

    loss = kind if kind == "mse" else squared
    report = diagnose(network, [(x, y)], loss=loss, control=-0.5)
    assert (report.task, report.loss_assumed) == ("regression", False)
    assert report.loss == ("squared error" if kind == "mse" else squared.__qualname__)
    outputs, states = copy.deepcopy(network).double()(x[:1280].double(), return_hidden=True)
    g = torch.autograd.grad(squared(outputs, y[:1280].double()).sum(), states[-1])[0] / 128
    expected = g.norm(dim=1).quantile(0.5, interpolation="midpoint")
    unit = (y - y.mean(0)).square().sum(1).mean() if kind == "mse" else torch.ones(())
    assert report.bp_grad_norms[-1] * float(unit) == pytest.approx(float(expected), rel=1e-3)


def test_forward_gives_the_outputs_of_a_network_that_returns_several(network: ResidualMLP) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = copy.deepcopy(network)

        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.net(x)
            return -logits, logits + 0 * y[:, None]

    report = diagnose(Two(), data(), control=0.3, forward=lambda model, x, y: model(x, y)[1])
    plain = diagnose(network, data(), control=0.3)
    assert report.residual_norms == pytest.approx(plain.residual_norms, rel=1e-5)
    assert report.headline_acc == plain.headline_acc


def test_a_control_may_be_a_network_and_is_questioned_as_a_file_is(network: ResidualMLP) -> None:
    torch.manual_seed(1)
    control = ResidualMLP(6, 10, 3, 3)
    report = diagnose(network, iter(data()), control=control)
    (x, y), *_ = data()
    accuracy = int((control(x).argmax(1) == y).sum()) / len(y)
    assert report.frozen_baseline_acc == accuracy
    assert report.control.probes and report.control.score.correct is not None
    other = diagnose(network, data(), control=ResidualMLP(6, 12, 3, 3))
    assert any("different architecture" in doubt.text for doubt in other.control.doubts)
    with pytest.raises(AuditError, match="got both"):
        diagnose(network, data(), control=control, frozen_baseline_acc=0.3)


def test_own_credit_is_the_backward_of_the_network_itself(network: ResidualMLP) -> None:
    with pytest.raises(AuditError, match="no backward of its own"):
        diagnose(network, data(), control=0.3, credit="own")
    with pytest.raises(AuditError, match="expected a function or 'own', got 'bs'"):
        diagnose(network, data(), control=0.3, credit="bs")


def test_a_line_tells_how_far_it_is_and_a_saved_report_is_an_audit(
    network: ResidualMLP,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_fadiag.progress.PATIENCE", 0.0)
    report = diagnose(network, data(), control=0.3)
    assert capsys.readouterr().err.startswith("fadiag: unnamed: stream, 0 of 1, ")
    report.save(tmp_path / "audit.json")
    assert report.fired and main(["show", str(tmp_path / "audit.json")]) == 1
    assert "unnamed" in capsys.readouterr().out
    for progress, said in ((True, True), (False, False)):
        diagnose(network, data(), control=0.3, progress=progress)
        assert ("samples, 128 of 1,300, " in capsys.readouterr().err) is said
