"""Networks built to have one fault each: exactly the right diagnostics fire, with confounds excused or flagged."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from support import clustered, in_batches, network
from torch import nn

from pytest_fadiag import DiagnosticReport, DiagnosticThresholds, ResidualMLP, diagnose
from pytest_fadiag.judge.diagnostics import Cause, CauseKind

Make = Callable[[ResidualMLP], ResidualMLP]


@torch.no_grad()
def saturated(model: ResidualMLP) -> ResidualMLP:
    model.out_head.weight.mul_(1.7)
    model.out_head.bias.mul_(1.7)
    return model


@torch.no_grad()
def biased(model: ResidualMLP) -> ResidualMLP:
    """A head that leans to one class by a little: the mean output error points one way, single samples do not."""
    model = network(seed=1)
    model.out_head.bias[0] += 1.0
    return model


@torch.no_grad()
def one_class(model: ResidualMLP) -> ResidualMLP:
    """The trained network with a large bias on one logit: it predicts that class whatever it sees."""
    model.out_head.bias[0] += 100
    return model


@torch.no_grad()
def exploded(model: ResidualMLP) -> ResidualMLP:
    """One block multiplies the stream by a thousand; without terminal norm the gradient stays."""
    model = network(out_ln=False)
    model.blocks[0].fc2.weight.mul_(2e4)
    model.out_head.weight.mul_(1e-4)
    model.out_head.bias.zero_()
    return model


@torch.no_grad()
def floored(model: ResidualMLP) -> ResidualMLP:
    """No path back to the stream: a head of tiny weights, errors of ordinary size."""
    model = network(out_ln=False)
    model.out_head.weight.mul_(1e-6)
    model.out_head.bias.zero_()
    return model


@torch.no_grad()
def drifted(model: ResidualMLP) -> ResidualMLP:
    """A linear head on one direction of the stream: every sample's gradient is a multiple of it, mostly of one sign."""
    model = network(out_ln=False)
    for block in model.blocks:
        block.fc2.weight.zero_()
        block.fc2.bias.zero_()
    direction = nn.functional.normalize(torch.ones(16), dim=0)
    model.out_head.weight.copy_(torch.outer(torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0]), 0.1 * direction))
    model.out_head.bias.copy_(torch.tensor([8.0, 0.0, 0.0, 0.0, 0.0]))
    return model


@torch.no_grad()
def not_a_number(model: ResidualMLP) -> ResidualMLP:
    model.blocks[1].fc1.weight[0, 0] = math.nan
    return model


@torch.no_grad()
def all_zero(model: ResidualMLP) -> ResidualMLP:
    for parameter in model.parameters():
        parameter.zero_()
    return model


def report_of(
    make: Make, trained_network: Callable[[], ResidualMLP], confounds: str, control: float | None = 0.4
) -> DiagnosticReport:
    x, y = clustered(1300)
    return diagnose(
        model=make(trained_network()),
        eval_batches=in_batches(x, y),
        frozen_baseline_acc=control,
        thresholds=DiagnosticThresholds(confounds=confounds, frozen_acc_margin_pp=-100),
    )


def fired(report: DiagnosticReport) -> str:
    return "".join(finding.key for finding in report.findings if finding.fired)


@pytest.mark.parametrize(
    ("make", "excused", "flagged"),
    [
        pytest.param(lambda model: model, "", "", id="healthy"),
        pytest.param(saturated, "", "b", id="saturated"),
        pytest.param(biased, "", "c", id="biased"),
        pytest.param(one_class, "c", "c", id="one class only"),
        pytest.param(exploded, "a", "a", id="exploded"),
        pytest.param(floored, "b", "b", id="floored"),
        pytest.param(drifted, "c", "c", id="drifted"),
        pytest.param(not_a_number, "abcd", "abcd", id="NaN"),
        pytest.param(all_zero, "abc", "abc", id="all zero"),
    ],
)
def test_exactly_the_right_diagnostics_fire(
    make: Make, excused: str, flagged: str, trained_network: Callable[[], ResidualMLP]
) -> None:
    assert fired(report_of(make, trained_network, "excuse")) == excused
    assert fired(report_of(make, trained_network, "flag")) == flagged


def test_the_saturated_network_is_said_to_be_saturated(trained_network: Callable[[], ResidualMLP]) -> None:
    report = report_of(saturated, trained_network, "excuse")
    assert report.bp_grad_norms[-1] < 1e-7
    assert report.finding("b").causes == (Cause(CauseKind.SATURATED),)


def test_the_biased_network_is_said_to_be_biased(trained_network: Callable[[], ResidualMLP]) -> None:
    report = report_of(biased, trained_network, "excuse")
    causes = report.finding("c").causes
    assert [cause.kind for cause in causes] == [CauseKind.NOT_SAMPLE_INVARIANT, CauseKind.BIASED_OUTPUT]
    assert causes[1].text.startswith("biased output 0.")


def test_an_undercut_network_fires_d(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(1300)
    report = diagnose(model=trained_network(), eval_batches=in_batches(x, y), headline_acc=0.308, frozen_baseline_acc=0.349)
    assert fired(report) == "d"


def test_a_network_at_chance_is_named() -> None:
    x, y = clustered(1300)
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]
    report = diagnose(model=network(), eval_batches=in_batches(x, y))
    assert "accuracy is at chance (1/5)" in str(report)


def test_nan_weights_are_named_and_no_number_passes(trained_network: Callable[[], ResidualMLP]) -> None:
    report = report_of(not_a_number, trained_network, "excuse")
    assert "1 weight tensor with NaN or inf: blocks.1.fc1.weight" in str(report)
    assert report.headline_acc == 0.0
    assert "first at layer 2" in report.finding("a").headline


def test_half_precision_is_audited_in_float32_and_said(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(1300)
    half = trained_network().half()
    report = diagnose(model=half, eval_batches=in_batches(x, y))
    rounded = trained_network().half().float()
    same = diagnose(model=rounded, eval_batches=in_batches(x, y))
    assert report.bp_grad_norms == same.bp_grad_norms
    assert "half precision (float16); it was audited in float32" in str(report)
    assert next(half.parameters()).dtype == torch.float16


def test_float64_networks_are_measured_in_float64(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(1300)
    report = diagnose(model=trained_network().double(), eval_batches=in_batches(x, y))
    assert report.environment["dtype"] == "float64"


def test_another_loss_can_be_given(trained_network: Callable[[], ResidualMLP]) -> None:
    """Half the squared distance to one-hot: e is logits - one-hot, and the gradient follows it."""
    x, y = clustered(300)

    def squared(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return 0.5 * (logits - nn.functional.one_hot(labels, 5)).square().sum(1)

    model = trained_network()
    report = diagnose(model=model, eval_batches=in_batches(x, y), loss=squared)
    with torch.no_grad():
        errors = (model(x[:256]) - nn.functional.one_hot(y[:256], 5)).double().norm(dim=1)
    expected = errors.sort().values[127:129].mean().item()
    assert report.companions.output_error_norm == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("factor", [3.0, 20.0, 100.0])
def test_a_network_of_any_confidence_is_excused_by_its_gradient_per_unit_error(
    factor: float, trained_network: Callable[[], ResidualMLP]
) -> None:
    """Scaling the head by k scales its Jacobian by k, however far the output error itself has underflown."""
    x, y = clustered(1300)
    model = trained_network()
    with torch.no_grad():
        model.out_head.weight.mul_(factor)
        model.out_head.bias.mul_(factor)
    report = diagnose(model=model, eval_batches=in_batches(x, y))
    assert report.finding("b").causes == (Cause(CauseKind.SATURATED),)
    assert report.companions.zero_gradient_samples == 0
    assert report.companions.gradient_per_unit_error is not None
    plain = diagnose(model=trained_network(), eval_batches=in_batches(x, y)).companions.gradient_per_unit_error
    assert plain is not None
    assert factor / 3 < report.companions.gradient_per_unit_error / plain < factor * 3


@pytest.mark.parametrize("bias", [30.0, 50.0, 100.0])
def test_sample_invariance_does_not_depend_on_how_far_the_output_is_driven(
    bias: float, trained_network: Callable[[], ResidualMLP]
) -> None:
    x, y = clustered(1300)

    def invariance(extra: float) -> float:
        model = trained_network()
        with torch.no_grad():
            model.out_head.bias[0] += extra
        value = diagnose(model=model, eval_batches=in_batches(x, y)).companions.sample_invariance
        assert value is not None
        return value

    assert invariance(bias) == pytest.approx(invariance(200.0), rel=1e-3)


def test_class_weights_in_float32_are_no_hindrance(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(300)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0]), reduction="none")
    report = diagnose(model=trained_network(), eval_batches=in_batches(x, y), loss=weighted)
    probe = (x[:256].double(), y[:256])
    model = trained_network().double()
    state = model.hidden(probe[0])[-1].requires_grad_()
    logits = model.out_head(model.out_ln(state))
    weights = torch.tensor([1.0, 2.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    nn.functional.cross_entropy(logits, probe[1], weight=weights, reduction="sum").backward()
    assert state.grad is not None
    assert report.bp_grad_norms[-1] == pytest.approx(float(state.grad.norm(dim=1).quantile(0.5)) / 128, rel=1e-5)


def test_autocast_around_the_call_does_not_make_it_half_precision(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(300)
    plain = diagnose(model=trained_network(), eval_batches=in_batches(x, y))
    with torch.autocast("cpu", dtype=torch.float16):
        assert diagnose(model=trained_network(), eval_batches=in_batches(x, y)).bp_grad_norms == plain.bp_grad_norms


def test_a_headline_that_is_not_the_networks_own_is_noted(trained_network: Callable[[], ResidualMLP]) -> None:
    x, y = clustered(1300)
    batches = in_batches(x, y)
    measured = diagnose(model=trained_network(), eval_batches=batches).headline_acc
    same = diagnose(model=trained_network(), eval_batches=batches, headline_acc=measured, frozen_baseline_acc=0.28)
    assert "95 % interval" in str(same)
    assert same.to_dict()["margin_interval"]["kind"].startswith("binomial")
    other = diagnose(model=trained_network(), eval_batches=batches, headline_acc=0.3, frozen_baseline_acc=0.28)
    assert "no interval: the number of test images is not known" in str(other)
    assert "headline accuracy given as 0.3000, but" in str(other)
