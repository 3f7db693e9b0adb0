"""The reference is the derivative of what the network computes, or there is none."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from own_backwards import (
    CASES,
    CLASSES,
    FEEDBACK,
    D,
    Feedback,
    Inner,
    Kernel,
    Net,
    Quantised,
    feedback_linear,
    made,
    plain_copy,
)
from support import by_hand, changed, clustered, in_batches, measured
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.nn import functional as F
from torch.utils import checkpoint as checkpointing

from pytest_fadiag.judge.records import Measurement, Reference
from pytest_fadiag.measure.copies import copy_of, working_copy
from pytest_fadiag.measure.inputs import NetworkError
from pytest_fadiag.measure.reference import FLOAT64, _Trial, differ, passed, prove, shifted
from pytest_fadiag.measure.run import NetworkSource
from pytest_fadiag.measure.undo import Undo, undone

X, Y = clustered(256)


def test_directions_one_by_one_give_what_they_give_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = []
    for outputs in (1 << 20, 0):
        monkeypatch.setattr("pytest_fadiag.measure.reference.OUTPUTS", outputs)
        source = NetworkSource(made("plain"), [(X, Y)])
        trial = _Trial(
            copy_of(source.network, torch.float64), source.stream, X[:8].double(), FLOAT64
        )
        errors.append(trial.differences(0))
    together, one_by_one = errors
    torch.testing.assert_close(one_by_one.values, together.values, rtol=1e-6, atol=0.0)
    assert one_by_one.responses == pytest.approx(together.responses, rel=1e-6)
    assert max(one_by_one.errors) < 1e-5 and len(one_by_one.errors) == len(together.errors)


pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
"""Of checkpoints, without a graph."""


def gradients_of(net: Net) -> Measurement:
    return measured(net, in_batches(X, Y), ["gradients"])


def proof_of(net: nn.Module) -> Reference:
    return NetworkSource(net, [(X, Y)]).proof


def summed(outputs: Tensor) -> Tensor:
    return F.cross_entropy(outputs, Y, reduction="sum")


# --- own backwards are undone ---------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_is_that_of_the_plain_network_with_the_same_weights(name: str) -> None:
    net = made(name)
    found, expected = gradients_of(net), by_hand(plain_copy(net), X, Y)
    assert found.bp_grad_norms == pytest.approx(expected["bp_grad_norms"], rel=1e-5)
    assert found.reference is not None
    assert (found.reference.problem, found.reference.dtype) == ("", "float64")
    assert found.reference.error is not None and found.reference.error < 1e-7
    assert found.reference.own_backward == (
        name not in ("plain", "checkpoint", "reentrant checkpoint")
    )


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("plain", []),
        ("feedback alignment", [f"blocks.{i}.fc{j} (OwnLinear)" for i in range(3) for j in (1, 2)]),
        ("module hooks", ["blocks.0 (Block)", "blocks.1.fc1 (Linear)"]),
        ("detached residual", [f"blocks.{block} (Block)" for block in range(3)]),
        ("tensor hooks", [f"blocks.{block} (Block)" for block in range(3)]),
    ],
)
def test_modules_with_a_backward_of_their_own_are_named(name: str, modules: list[str]) -> None:
    assert proof_of(made(name)).modules == tuple(modules)


def test_a_head_whose_gradient_collapses_is_seen_also_through_a_feedback_matrix() -> None:
    net = made(Net, linear=FEEDBACK)
    net.head = FEEDBACK(D, CLASSES)
    changed(net, lambda net: net.head.weight.mul_(1e-7))
    expected = by_hand(plain_copy(net), X, Y)["bp_grad_norms"]
    assert gradients_of(net).bp_grad_norms == pytest.approx(expected, rel=1e-5)
    assert expected[-1] < 1e-8


def test_the_own_backward_can_be_asked_for_at_the_same_states() -> None:
    net = made("feedback alignment")
    source = NetworkSource(net, [(X, Y)])
    own, true = (
        passed(source.network, source.stream, X, summed, own_backward=own) for own in (True, False)
    )
    for one, other in ((own, net), (true, plain_copy(net))):
        h = net.embed(X).detach().requires_grad_()
        read = h
        for block in other.blocks:
            read = block(read)
        torch.testing.assert_close(
            one.gradients[0], torch.autograd.grad(summed(other.read(read)), h)[0]
        )
    torch.testing.assert_close(own.gradients[-1], true.gradients[-1])
    assert differ(own.gradients, true.gradients) and not differ(own.gradients, own.gradients)
    late = passed(source.network, source.stream, X, summed, first=3)
    torch.testing.assert_close(late.gradients[-1], true.gradients[-1])
    assert not any(gradient.any() for gradient in late.gradients[:-1])


class Projected(torch.autograd.Function):
    """Hands a state on as it is, and another gradient back: all of the rule is in the backward."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        return h.view_as(h)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> Tensor:
        return torch.full_like(error, 7.0)


def test_the_credit_of_a_function_that_hands_a_state_on_is_what_it_gives_to_the_block_before() -> (
    None
):
    net = made(Net, step=lambda block, h: Projected.apply(h + block.branch(h)))
    source = NetworkSource(net, [(X, Y)])
    own = passed(source.network, source.stream, X, summed, own_backward=True)
    assert own.handed_on
    assert all(bool((gradient == 7).all()) for gradient in own.gradients[1:])
    assert not passed(source.network, source.stream, X, summed).handed_on


def test_an_own_backward_that_is_the_derivative_serves_where_autograd_cannot_see_the_forward() -> (
    None
):
    net = made(Net, act=lambda block, z: Kernel.apply(z.detach(), 1.0))
    expected = by_hand(plain_copy(net, act=lambda block, z: z**3), X, Y)["bp_grad_norms"]
    assert gradients_of(net).bp_grad_norms == pytest.approx(expected, rel=1e-5)


def test_a_forward_of_an_own_function_is_called_once_and_its_failure_is_told() -> None:
    calls: list[int] = []

    class Failing(Feedback):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Tensor:
            calls.append(1)
            raise RuntimeError("out of room")

    net = made(Net, act=lambda block, z: Failing.apply(z))
    with pytest.raises(RuntimeError, match="out of room"), torch.enable_grad(), undone(Undo(net)):
        net(X)
    assert len(calls) == 1


# --- what cannot be undone is named, and nothing is proven ----------------------------------------


def _no_grad(block: Any, z: Tensor) -> Tensor:
    with torch.no_grad():
        return F.gelu(z)


HIDDEN: dict[str, tuple[str, Inner]] = {
    "data": (r"cannot be undone: \.data;", lambda block, z: F.gelu(z.data)),
    "no_grad": ("cannot be undone: no_grad;", _no_grad),
    "item": (r": item\(\);", lambda block, z: torch.stack([row * row.sum().item() for row in z])),
    "tolist": (r": item\(\);", lambda block, z: torch.tensor(z.tolist(), dtype=z.dtype).tanh()),
    "numpy": (r": numpy\(\);", lambda block, z: torch.from_numpy(z.detach().numpy()).tanh()),
    "kernel": (
        "a function whose forward autograd cannot see",
        lambda block, z: Kernel.apply(z, 2.0),
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_cannot_be_undone_leaves_the_reference_unproven_and_the_rest_measured(
    name: str,
) -> None:
    message, act = HIDDEN[name]
    found = measured(made(Net, act=act), in_batches(X, Y))
    assert found.reference is not None
    assert re.match(
        "autograd's derivative lies .* from finite differences", found.reference.problem
    )
    assert re.search(message, found.reference.problem)
    assert found.reference.problem.endswith("by --fa-model=package.module:factory")
    assert (found.bp_grad_norms, found.cross_batch_stability) == ((), None)
    assert len(found.residual_norms) == 4 and found.score is not None
    assert found.output_error_norm is not None


STEPS: dict[str, Inner] = {
    "residual": lambda block, h: h + block.branch(h),
    "chain": lambda block, h: block.branch(h),
}
STRAIGHT_THROUGH: dict[str, Inner] = {
    "quantised": lambda block, z: Quantised.apply(z),
    "sign": lambda block, z: z + (torch.sign(z) - z).detach(),
    "step": lambda block, z: (z > 0).to(z.dtype),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", STRAIGHT_THROUGH)
def test_a_piecewise_constant_forward_is_refused_in_those_words(name: str, step: str) -> None:
    problem = proof_of(made(Net, act=STRAIGHT_THROUGH[name], step=STEPS[step])).problem
    assert re.match(
        r"block blocks\.0(\.fc1)? is piecewise constant, as with a straight-th", problem
    )
    assert "--fa-model" not in problem


def test_a_piecewise_constant_head_is_refused_too() -> None:
    net = made(Net)
    net.out_ln.register_forward_hook(lambda module, inputs, output: Quantised.apply(output))
    assert proof_of(net).problem.startswith("the head is piecewise constant")


# --- networks of which there is little to differentiate -------------------------------------------

DEGENERATE: dict[str, tuple[Callable[[Net], Any], dict[str, Any]]] = {
    "zero head": (lambda net: net.head.weight.zero_(), {}),
    "zero blocks": (lambda net: [block.fc2.weight.zero_() for block in net.blocks], {}),
    "tiny head": (lambda net: net.head.weight.mul_(1e-30), {}),
    "not a number": (lambda net: net.blocks[1].fc1.weight.fill_(math.nan), {}),
    "infinite": (lambda net: net.embed.bias.fill_(math.inf), {}),
    "exploded": (lambda net: net.blocks[0].fc2.weight.mul_(1e12), {}),
    "overflowing": (lambda net: net.blocks[0].fc2.weight.mul_(1e38), {}),
    "dead units": (
        lambda net: [block.fc1.bias.fill_(-1e3) for block in net.blocks],
        {"act": lambda block, z: F.relu(z), "step": STEPS["chain"]},
    ),
    "one value": (lambda net: net.embed.weight.zero_(), {}),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_dead_or_exploded_network_is_measured_and_its_reference_is_proven(name: str) -> None:
    change, parts = DEGENERATE[name]
    found = gradients_of(changed(made(Net, **parts), change))
    assert found.reference is not None
    assert found.reference.problem == ""
    assert len(found.bp_grad_norms) >= 4
    dead = ("zero head", "not a number", "infinite", "dead units")
    assert found.reference.reinitialised or name not in dead


def test_a_dead_network_hides_no_backward_of_its_own() -> None:
    net = changed(made(Net, act=HIDDEN["data"][1]), lambda net: net.head.weight.zero_())
    record = proof_of(net)
    assert "from finite differences" in record.problem and record.reinitialised


# --- precision ------------------------------------------------------------------------------------


def _single(block: Any, z: Tensor) -> Tensor:
    if z.element_size() != 4:
        raise RuntimeError("expected Float but found Double")
    return F.gelu(z)


def test_without_a_float64_copy_the_proof_is_taken_in_float32_and_says_so() -> None:
    record = proof_of(made(Net, act=_single))
    assert (record.problem, record.dtype) == ("", "float32")
    assert re.match("no float64 copy runs: .*RuntimeError: expected Float but found", record.remark)
    assert record.error is not None and 1e-7 < record.error < 5e-2
    wrong = proof_of(made(Net, act=lambda block, z: _single(block, z.data)))
    assert "(0.05 is allowed)" in wrong.problem


def test_parts_that_ask_for_float32_compute_in_float64_for_the_proof() -> None:
    def act(block: Any, z: Tensor) -> Tensor:
        return F.softmax(z.float(), -1, dtype=torch.float32).to(torch.float32).to(z.dtype)

    record = proof_of(made(Net, act=act))
    assert (record.dtype, record.remark) == ("float64", "")
    assert record.error is not None and record.error < 1e-7


# --- what moves -----------------------------------------------------------------------------------


def test_a_state_is_shifted_as_if_its_block_had_written_so() -> None:
    source = NetworkSource(made(Net), [(X, Y)])
    states = source.network.states(X)
    shift = torch.randn(256, D)
    for layer in range(4):
        h = states[layer] + shift
        for block in source.network.blocks[layer:]:
            h = block(h)
        found = shifted(source.network, source.stream, X, layer, shift)
        torch.testing.assert_close(found, source.network.read(h))


def test_a_failing_backward_is_told_as_the_networks() -> None:
    source = NetworkSource(made("direct feedback"), [(X, Y)])
    with pytest.raises(NetworkError, match="the network's backward failed: AttributeError"):
        passed(source.network, source.stream, X, summed, own_backward=True)


# --- everything as before -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["feedback alignment", "module hooks", "checkpoint"])
def test_the_context_undoes_itself_and_reaches_no_other_thread(name: str) -> None:
    net = working_copy(made(name))
    hooks = [module._backward_hooks for module in net.modules()]
    generator = checkpointing._checkpoint_without_reentrant_generator  # type: ignore[attr-defined]
    elsewhere: list[Tensor] = []

    def own_gradient() -> None:
        h, feedback = torch.ones(2, 3, requires_grad=True), torch.randn(4, 3)
        output = feedback_linear(h, torch.zeros(4, 3), torch.zeros(4), feedback)
        elsewhere.extend([torch.autograd.grad(output.sum(), h)[0], feedback.sum(0).expand(2, 3)])

    with pytest.raises(ZeroDivisionError), undone(Undo(net)):
        assert not any(module._backward_hooks for module in net.modules())
        thread = threading.Thread(target=own_gradient)
        thread.start()
        thread.join()
        raise ZeroDivisionError
    own_gradient()
    for gradient, expected in (elsewhere[:2], elsewhere[2:]):
        torch.testing.assert_close(gradient, expected)
    assert "apply" not in vars(_SingleLevelFunction)
    assert checkpointing._checkpoint_without_reentrant_generator is generator  # type: ignore[attr-defined]
    assert all(
        module._backward_hooks is own for module, own in zip(net.modules(), hooks, strict=True)
    )
    assert not torch.ones(2, requires_grad=True).detach().requires_grad


def test_a_proof_of_other_samples_is_the_same_but_for_rounding() -> None:
    source = NetworkSource(made(Net), [(X, Y)])
    errors = [prove(source.network, source.stream, X[part:]).error for part in (0, 100)]
    assert all(error is not None and 0 < error < 1e-7 for error in errors)
