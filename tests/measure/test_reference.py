"""The reference is the derivative of what the network computes, or there is none: whatever its authors wrote as a backward."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from own_backwards import CASES, CLASSES, D, Feedback, Net, OwnLinear, feedback_linear, made, plain_copy
from support import clustered, in_batches, network
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn import functional as F
from torch.utils import checkpoint as checkpointing

from pytest_fadiag import AuditError, bp_grad_norms, diagnose, measure
from pytest_fadiag.measure.reference import passed, prove
from pytest_fadiag.measure.stream.find import find_stream
from pytest_fadiag.measure.through_forward import through_forward
from pytest_fadiag.measure.undisturbed import undisturbed

X, Y = clustered(256)
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # of checkpoints, without a graph


def true_norms(plain: Net) -> list[float]:
    """Median ‖g_l‖ of a plain float64 network, by autograd alone."""
    h = plain.embed(X.double()).detach().requires_grad_()
    states = [h]
    for block in plain.blocks:
        states.append(block(states[-1]))
    losses = F.cross_entropy(plain.head(plain.out_ln(states[-1])), Y, reduction="sum")
    gradients = torch.autograd.grad(losses / 128, states)
    return [float(gradient.norm(dim=1).quantile(0.5)) for gradient in gradients]


def proof_of(net: nn.Module) -> Any:
    with undisturbed(net) as (prepared, _):
        return prove(prepared, find_stream(prepared, X[:3]), X)


# --- own backwards ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_plain_network_with_the_same_weights(name: str) -> None:
    net = made(CASES[name])
    measurement = measure(net, in_batches(X, Y))
    assert measurement.bp_grad_norms == pytest.approx(true_norms(plain_copy(net)), rel=1e-5)
    assert measurement.reference_error is not None
    assert measurement.reference_error < 1e-7
    assert measurement.reference is not None
    assert measurement.reference.problem == ""
    assert measurement.reference.own_backward == (name not in ("plain", "checkpoint", "reentrant checkpoint"))


def test_what_has_a_backward_of_its_own_is_named() -> None:
    reference = proof_of(made(CASES["feedback alignment"])).record
    assert reference.modules == tuple(f"blocks.{block}.fc{layer} (OwnLinear)" for block in range(3) for layer in (1, 2))
    assert proof_of(made(CASES["module hooks"])).record.modules == ("blocks.0 (Block)", "blocks.1.fc1 (Linear)")
    assert proof_of(made(CASES["detached residual"])).record.modules == tuple(f"blocks.{block} (Block)" for block in range(3))
    assert proof_of(made(CASES["plain"])).record.modules == ()


def test_a_head_whose_gradient_collapses_fires_also_behind_a_feedback_matrix() -> None:
    net = made(lambda: Net(lambda a, b: OwnLinear(a, b, feedback_linear)))
    net.head = OwnLinear(D, CLASSES, feedback_linear)
    with torch.no_grad():
        net.head.weight.mul_(1e-7)
    norms = measure(net, in_batches(X, Y)).bp_grad_norms
    plain = plain_copy(net)
    assert norms == pytest.approx(true_norms(plain), rel=1e-5)
    assert diagnose(model=net, eval_batches=in_batches(X, Y)).bp_grad_at_floor


def test_the_own_backward_can_be_asked_for_at_the_same_states() -> None:
    net = made(CASES["feedback alignment"])
    with undisturbed(net) as (prepared, _):
        stream = find_stream(prepared, X[:3])
        own = passed(prepared, stream, X, lambda logits: F.cross_entropy(logits, Y, reduction="sum"), own_backward=True)
        true = passed(prepared, stream, X, lambda logits: F.cross_entropy(logits, Y, reduction="sum"))
    h = net.embed(X).detach().requires_grad_()
    (by_hand,) = torch.autograd.grad(F.cross_entropy(_from_h_0(net, h), Y, reduction="sum"), h)
    torch.testing.assert_close(own.gradients[0], by_hand)
    plain = plain_copy(net).float()
    (true_by_hand,) = torch.autograd.grad(F.cross_entropy(_from_h_0(plain, h), Y, reduction="sum"), h)
    torch.testing.assert_close(true.gradients[0], true_by_hand)
    torch.testing.assert_close(own.gradients[-1], true.gradients[-1])
    assert F.cosine_similarity(own.gradients[0], true.gradients[0]).abs().max() < 0.9


def _from_h_0(net: Net, h: Tensor) -> Tensor:
    for block in net.blocks:
        h = block(h)
    return net.head(net.out_ln(h))  # type: ignore[no-any-return]


class Kernel(torch.autograd.Function):
    """A fused kernel: autograd cannot see its forward, and its backward is the derivative, times a factor if it has a bug."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.factor = factor
        return torch.from_numpy(z.detach().cpu().numpy() ** 3).to(z)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Any:
        (z,) = ctx.saved_tensors
        return ctx.factor * 3 * z**2 * error, None


def test_an_own_backward_that_is_the_derivative_is_used_where_autograd_cannot_see_the_forward() -> None:
    net = made(lambda: Net(act=lambda block, z: Kernel.apply(z.detach(), 1.0)))
    plain = plain_copy(net, lambda block, z: z**3)
    assert measure(net, in_batches(X, Y)).bp_grad_norms == pytest.approx(true_norms(plain), rel=1e-5)


def test_a_gradient_scaled_by_two_at_one_layer_is_caught() -> None:
    def act(block: nn.Module, z: Tensor) -> Tensor:
        return Kernel.apply(z, 2.0 if block.twice else 1.0)  # type: ignore[no-any-return]

    net = made(lambda: Net(act=act))
    for number, block in enumerate(net.blocks):
        block.twice = number == 2  # type: ignore[assignment]
    record = proof_of(net).record
    assert "from finite differences" in record.problem
    assert "a forward that autograd cannot see in blocks.0 (Block)" in record.problem
    for block in net.blocks:
        block.twice = False  # type: ignore[assignment]
    assert proof_of(net).record.problem == ""


# --- what cannot be undone -------------------------------------------------------------------------------------------


def _no_grad(block: nn.Module, z: Tensor) -> Tensor:
    with torch.no_grad():
        return F.gelu(z)


HIDDEN: dict[str, tuple[str, Callable[[nn.Module, Tensor], Tensor]]] = {
    "data": (r"\.data in blocks.0 \(Block\), blocks.1 \(Block\), blocks.2 \(Block\) cannot", lambda block, z: F.gelu(z.data)),
    "no_grad": (r"no_grad in blocks.0 \(Block\)", _no_grad),
    "item": (r"item\(\) in blocks.0 \(Block\)", lambda block, z: torch.stack([row * row.sum().item() for row in z])),
    "tolist": (r"item\(\) in blocks.0 \(Block\)", lambda block, z: torch.tensor(z.tolist(), dtype=z.dtype).tanh()),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cannot_be_undone_leaves_the_reference_unproven_and_is_named(name: str) -> None:
    message, act = HIDDEN[name]
    net = made(lambda: Net(act=act))
    measurement = measure(net, in_batches(X, Y))
    assert measurement.reference is not None
    assert re.search(message, measurement.reference.problem)
    assert "audit a plain network with the same weights by --fa-model" in measurement.reference.problem
    assert measurement.bp_grad_norms == ()
    assert measurement.cross_batch_stability is None
    assert len(measurement.residual_norms) == 4
    assert measurement.accuracy is not None


def test_without_a_proven_reference_b_and_c_are_not_judged_and_nothing_calls_that_a_pass() -> None:
    net = made(lambda: Net(act=HIDDEN["data"][1]))
    report = diagnose(model=net, eval_batches=in_batches(X, Y), frozen_baseline_acc=0.5, thresholds={"margin_pp": -100})
    assert [finding.status.value for finding in report.findings][1:3] == ["not measured", "not measured"]
    assert report.finding("a").measured
    assert report.finding("d").measured
    assert report.verdict == "incomplete: gradient-floor not measured; direction-drift not measured"
    assert "reference: not proven: autograd's derivative lies" in str(report)
    assert "(b) gradient-floor: not measured (reference not proven)" in str(report)
    for judged in (lambda: report.bp_grad_at_floor, lambda: report.reference_drift_dominated, report.check):
        with pytest.raises(AuditError, match="the reference is not proven: autograd's derivative lies"):
            judged()
    assert report.to_dict()["bp_grad_at_floor"] is None
    again = type(report).from_dict(report.to_dict())
    assert (again.reference, again.reference_error, again.verdict) == (report.reference, report.reference_error, report.verdict)
    with pytest.raises(AuditError, match="the reference is not proven"):
        bp_grad_norms(net, in_batches(X, Y))


class Spike(torch.autograd.Function):
    """A spiking unit with a surrogate gradient."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return (z > 0).to(z.dtype)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        return error / (1 + z.abs()) ** 2


class Quantised(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return torch.round(4 * z) / 4

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Tensor:
        return error


STEPS = {"residual": lambda block, h: h + block.branch(h), "chain": lambda block, h: block.branch(h)}
STRAIGHT_THROUGH = {
    "spike": lambda block, z: Spike.apply(z),
    "quantised": lambda block, z: Quantised.apply(z),
    "detach": lambda block, z: z + (torch.sign(z) - z).detach(),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", STRAIGHT_THROUGH)
def test_a_piecewise_constant_forward_is_refused_in_those_words(name: str, step: str) -> None:
    record = proof_of(made(lambda: Net(act=STRAIGHT_THROUGH[name], step=STEPS[step]))).record
    assert record.problem.startswith("block 0 is piecewise constant, as with a straight-through estimator, and has no useful")
    assert "--fa-model" not in record.problem


def test_a_piecewise_constant_head_is_refused_too() -> None:
    net = made(Net)
    net.out_ln.register_forward_hook(lambda module, inputs, output: Quantised.apply(output))
    assert proof_of(net).record.problem.startswith("the head is piecewise constant")


# --- networks of which there is little to differentiate ----------------------------------------------------------------


def _changed(change: Callable[[Net], None], **options: Any) -> Net:
    net = made(lambda: Net(**options))
    with torch.no_grad():
        change(net)
    return net


DEGENERATE: dict[str, tuple[Net, str]] = {
    "zero head": (_changed(lambda net: net.head.weight.zero_()), "BP grad"),
    "zero blocks": (_changed(lambda net: [block.fc2.weight.zero_() for block in net.blocks]), ""),
    "tiny head": (_changed(lambda net: net.head.weight.mul_(1e-30)), "BP grad"),
    "not a number": (_changed(lambda net: net.blocks[1].fc1.weight.fill_(math.nan)), "BP grad"),
    "infinite": (_changed(lambda net: net.embed.bias.fill_(math.inf)), "BP grad"),
    "exploded": (_changed(lambda net: net.blocks[0].fc2.weight.mul_(1e12)), "residual stream exploded; BP grad"),
    "overflowing": (_changed(lambda net: net.blocks[0].fc2.weight.mul_(1e38)), "residual stream exploded; BP grad"),
    "dead units": (
        _changed(
            lambda net: [block.fc1.bias.fill_(-1e3) for block in net.blocks],
            act=lambda block, z: F.relu(z),
            step=STEPS["chain"],
        ),
        "BP grad",
    ),
    "one value": (_changed(lambda net: net.embed.weight.zero_()), ""),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_dead_or_exploded_network_is_audited_and_its_reference_is_proven(name: str) -> None:
    net, flags = DEGENERATE[name]
    report = diagnose(model=net, eval_batches=in_batches(X, Y))
    assert report.reference is not None
    assert report.reference.problem == ""
    assert flags in report.verdict


def test_a_dead_network_with_feedback_matrices_is_no_excuse() -> None:
    net = made(CASES["feedback alignment"])
    with torch.no_grad():
        net.head.weight.zero_()
    assert diagnose(model=net, eval_batches=in_batches(X, Y)).bp_grad_at_floor
    hidden = made(lambda: Net(act=HIDDEN["data"][1]))
    with torch.no_grad():
        hidden.head.weight.zero_()
    assert "from finite differences" in proof_of(hidden).record.problem


# --- precision ---------------------------------------------------------------------------------------------------------


def test_parts_that_ask_for_float32_compute_in_float64_for_the_proof() -> None:
    net = made(lambda: Net(act=lambda block, z: F.softmax(z.float(), -1, dtype=torch.float32).to(torch.float32).to(z.dtype)))
    proof = proof_of(net)
    assert (proof.record.dtype, proof.record.remark) == ("float64", "")
    assert proof.error < 1e-7


def test_without_a_float64_copy_the_proof_is_taken_in_float32_and_says_so() -> None:
    fixed = torch.eye(2 * D).tolist()

    def act(block: nn.Module, z: Tensor) -> Tensor:
        kept = torch.from_numpy(torch.tensor(fixed, dtype=torch.float32).numpy())  # nothing tells torch of it
        if z.dtype != torch.float32:
            raise RuntimeError("expected Float but found Double")
        return F.gelu(z @ kept)

    net = made(lambda: Net(act=act))
    proof = proof_of(net)
    assert proof.record.problem == ""
    assert proof.record.dtype == "float32"
    assert proof.record.remark == "no float64 copy runs: RuntimeError: expected Float but found Double"
    assert 1e-7 < proof.error < 5e-2
    wrong = made(lambda: Net(act=lambda block, z: act(block, z.data)))
    assert "(0.05 is allowed)" in proof_of(wrong).record.problem
    text = str(diagnose(model=net, eval_batches=in_batches(X, Y)))
    assert "in float32, since no float64 copy runs" in text


# --- everything as before --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*CASES, "failing"])
def test_nothing_is_left_behind(name: str) -> None:
    calls = 0

    def act(block: nn.Module, z: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls > 14:
            raise RuntimeError("in the middle")
        return F.gelu(Feedback.apply(z, torch.eye(2 * D).to(z), torch.zeros(2 * D).to(z), torch.ones(2 * D, 2 * D).to(z)))

    net = made(CASES[name] if name in CASES else lambda: Net(act=act)).train()
    handle = net.blocks[1].register_full_backward_hook(lambda module, inputs, outputs: None)
    hooks = [(module._backward_hooks, module._backward_pre_hooks, dict(module._backward_hooks)) for module in net.modules()]
    before = {name: value.clone() for name, value in net.state_dict().items()}
    generator = checkpointing._checkpoint_without_reentrant_generator  # type: ignore[attr-defined]
    if name == "failing":
        with pytest.raises(AuditError, match="in the middle"):
            measure(net, in_batches(X, Y))
    else:
        measure(net, in_batches(X, Y))
    assert "apply" not in vars(_SingleLevelFunction)
    assert checkpointing._checkpoint_without_reentrant_generator is generator  # type: ignore[attr-defined]
    assert torch.get_default_dtype() == torch.float32
    assert torch.overrides._get_current_function_mode_stack() == []
    for module, (own, pre, content) in zip(net.modules(), hooks, strict=True):
        assert module._backward_hooks is own
        assert module._backward_pre_hooks is pre
        assert module._backward_hooks == content
        assert module.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.requires_grad == ("weight_backward" not in name) and p.grad is None for name, p in net.named_parameters())
    handle.remove()
    h = torch.randn(4, D, requires_grad=True)
    w, b, feedback = torch.randn(3, D), torch.zeros(3), torch.randn(3, D)
    (gradient,) = torch.autograd.grad(feedback_linear(h, w, b, feedback).sum(), h)
    torch.testing.assert_close(gradient, torch.ones(4, 3) @ feedback)
    assert not h.detach().requires_grad


def test_the_context_undoes_itself_when_the_forward_fails() -> None:
    net = made(CASES["module hooks"])
    hooks = [module._backward_hooks for module in net.modules()]
    with pytest.raises(ZeroDivisionError), through_forward(net):
        assert not net.blocks[0]._backward_hooks
        raise ZeroDivisionError
    assert "apply" not in vars(_SingleLevelFunction)
    assert all(module._backward_hooks is own for module, own in zip(net.modules(), hooks, strict=True))
    x = torch.ones(2, requires_grad=True)
    assert not x.detach().requires_grad


def test_a_report_of_a_plain_network_says_how_far_the_reference_was_checked() -> None:
    report = diagnose(model=network(), eval_batches=in_batches(X, Y))
    (line,) = [line for line in str(report).splitlines() if "reference:" in line]
    assert line.startswith("  reference: BP gradient, agrees with finite differences to ")
    assert 0 < float(line.rpartition(" ")[2]) < 1e-7
    own = str(diagnose(model=made(CASES["feedback alignment"]), eval_batches=in_batches(X, Y)))
    assert "the own backward of 6 modules: blocks.0.fc1 (OwnLinear), blocks.0.fc2" in re.sub(r"\s+", " ", own)


def test_feedback_that_lies_in_a_block_is_not_counted_outside() -> None:
    net = made(CASES["feedback alignment"])
    sizes = {name: parameter.numel() for name, parameter in net.named_parameters()}
    assert sum(size for name, size in sizes.items() if "weight_backward" in name) > 0.3 * sum(sizes.values())
    stream = measure(net, [(X, Y)]).stream
    assert stream is not None
    blocks = sum(size for name, size in sizes.items() if name.startswith("blocks."))
    assert stream.outside == pytest.approx(1 - blocks / sum(sizes.values()), abs=1e-12)
    net.spare = nn.Linear(100, 100)  # what nothing reads and no block holds
    stream = measure(net, [(X, Y)]).stream
    assert stream is not None
    assert stream.outside == pytest.approx(1 - blocks / (sum(sizes.values()) + 10_100), abs=1e-12)
