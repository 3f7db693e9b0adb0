"""The network that is measured is a copy, in quiet: the caller's is never touched."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from own_backwards import Net, made
from support import changed, clustered, in_batches, measured, network
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.copies import (
    copy_of,
    named_modules,
    named_parameters,
    quiet,
    refuse_scripted,
    reinitialised,
    threads,
    unwrapped,
    working_copy,
)

X, Y = clustered(300)


class Listed(nn.Module):
    """Holds modules where torch does not look for them, and one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.blocks = [nn.Linear(2, 2), (nn.Linear(2, 2),)]
        self.by_name = {"head": nn.Linear(2, 2)}


def test_modules_in_plain_lists_and_dictionaries_have_names_too() -> None:
    net = Listed()
    assert list(named_modules(net)) == ["", "first", "blocks.0", "by_name.head", "blocks.1.0"]
    assert named_parameters(net)["blocks.1.0.bias"] is net.blocks[1][0].bias
    assert len(named_parameters(net)) == 8


def test_a_copy_takes_tensors_that_hold_a_graph_and_another_precision() -> None:
    net = network()
    net.kept = {"logits": [net(X)], "twice": net.embed.weight}
    wide: Any = copy_of(net, torch.float64)
    (kept,) = wide.kept["logits"]
    assert (kept.dtype, kept.requires_grad) == (torch.float64, False)
    assert wide.kept["twice"] is wide.embed.weight
    torch.testing.assert_close(kept.float(), net(X).detach())
    assert (wide.embed.weight.dtype, net.embed.weight.dtype) == (torch.float64, torch.float32)
    assert wide.embed.weight.requires_grad


def test_what_cannot_be_copied_is_refused() -> None:
    net = network()
    net.generator = (number for number in range(3))
    with pytest.raises(
        AuditError, match=r"cannot be copied: 'generator' of ResidualMLP cannot .*pickle"
    ):
        copy_of(net)
    with pytest.raises(AuditError, match=r"the model is dict; expected a torch\.nn\.Module"):
        working_copy({})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dtypes", "wide"),
    [
        ([torch.float16], torch.float32),
        ([torch.bfloat16, torch.float32], torch.float32),
        ([torch.float16, torch.float64], torch.float64),
    ],
)
def test_half_precision_is_measured_in_float32_and_a_mixture_in_the_widest(
    dtypes: list[torch.dtype], wide: torch.dtype
) -> None:
    net = nn.Sequential(*(nn.Linear(2, 2, dtype=dtype) for dtype in dtypes)).train()
    made = working_copy(net)
    assert {own.dtype for own in made.parameters()} == {wide}
    assert not made.training and not any(own.requires_grad for own in made.parameters())
    assert {own.dtype for own in net.parameters()} == set(dtypes)


def test_wrappers_are_taken_off_also_of_children() -> None:
    inner = nn.Linear(2, 2)
    assert unwrapped(nn.DataParallel(torch.compile(inner, backend="eager"))) is inner
    net = nn.Sequential(torch.compile(inner, backend="eager"), nn.ReLU())
    net[1].compile(backend="eager")
    made: Any = copy_of(nn.DataParallel(net))
    assert [type(part) for part in made] == [nn.Linear, nn.ReLU]
    assert made[1]._compiled_call_impl is None
    assert net[1]._compiled_call_impl is not None


def test_compiled_networks_and_functions_measure_as_their_authors_wrote_them() -> None:
    """With the backend that compiles nothing: a compiler takes a minute."""
    detaching = torch.compile(lambda z: F.gelu(z.detach()), backend="eager")
    inside = made(Net, act=lambda block, z: detaching(z))
    compiled = torch.compile(made(Net), backend="eager")
    plain, *others = (
        measured(net, in_batches(X, Y), ["gradients"]) for net in (made(Net), compiled, inside)
    )
    assert [other.bp_grad_norms for other in others] == [plain.bp_grad_norms] * 2


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_where_states_are_needed() -> None:
    net = made(Net).eval()
    traced = torch.jit.trace(net, X[:3])
    scores = [measured(own, in_batches(X, Y), ["accuracy"]).score for own in (net, traced)]
    assert scores[0] == scores[1]
    net.blocks[1].ln = torch.jit.script(net.blocks[1].ln)
    for own, what in ((traced, "the network"), (net, "module 'blocks.1.ln'")):
        with pytest.raises(AuditError, match=f"{what} is TorchScript"):
            refuse_scripted(own)


def test_re_initialised_weights_are_finite_and_repeatable_and_nothing_is_off() -> None:
    net = network()
    changed(net, lambda net: [net.embed.weight.fill_(math.nan), net.blocks[0].fc2.weight.zero_()])
    net.norm = nn.BatchNorm1d(4)
    net.norm.running_var.fill_(0)
    one, two = (reinitialised(copy_of(net)).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert all(bool(torch.isfinite(own).all()) for own in one.values())
    assert bool(one["blocks.0.fc2.weight"].all()) and bool((one["norm.running_var"] == 1).all())
    other = reinitialised(copy_of(net), gain=2.0)
    assert other.embed.weight.detach().std().item() == pytest.approx(2 / math.sqrt(20), rel=0.1)


def test_a_spectral_norm_stays_one() -> None:
    layers = [
        own(nn.Linear(30, 30)) for own in (parametrizations.spectral_norm, nn.utils.spectral_norm)
    ]
    own = nn.Sequential(*layers)
    for _ in range(30):
        own(torch.randn(2, 30))  # a step of the power method each, in training
    net = reinitialised(working_copy(own))
    net(torch.randn(2, 30))
    for layer in net:
        assert float(torch.linalg.matrix_norm(layer.weight, 2)) == pytest.approx(1, abs=0.1)


# --- the caller's world --------------------------------------------------------------------------


class Remembers(Net):
    """Draws random numbers, and changes what it holds with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))
        self.trace: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.trace.append(x)
        return super().forward(x + 0 * torch.rand_like(x))


@pytest.mark.parametrize("fails", [False, True])
def test_the_callers_network_data_and_modes_are_as_before(fails: bool) -> None:
    net = made(Remembers).train()
    net.blocks[1].eval()
    net.embed.weight.requires_grad_(False)
    net(X).sum().backward()
    handle = net.blocks[0].register_full_backward_hook(lambda *_: None)
    before, inputs = copy.deepcopy(net.state_dict()), X.clone()
    gradients = {name: copy.deepcopy(own.grad) for name, own in net.named_parameters()}
    modes = [(part.training, len(part._forward_hooks)) for part in net.modules()]
    state, number = torch.get_rng_state(), torch.get_num_threads()
    with torch.no_grad():
        if fails:
            with pytest.raises(AuditError, match="the network failed"):
                measured(net, [(X[:, :3], Y)])
        else:
            measured(net, in_batches(X, Y))
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == number
    assert [(part.training, len(part._forward_hooks)) for part in net.modules()] == modes
    assert all(torch.equal(own, before[name]) for name, own in net.state_dict().items())
    assert len(net.trace) == 1 and torch.equal(X, inputs)
    assert list(net.blocks[0]._backward_hooks) == [handle.id]
    for name, own in net.named_parameters():
        assert own.requires_grad == (name != "embed.weight")
        assert (own.grad is None) == (gradients[name] is None)
        assert own.grad is None or torch.equal(own.grad, gradients[name])


def test_quiet_has_no_gradients_no_autocast_and_its_own_random_stream() -> None:
    state = torch.get_rng_state()
    with torch.inference_mode(), torch.autocast("cpu"), quiet(network()):
        assert not (torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
        assert not torch.rand(3).is_inference()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "context", [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
)
def test_what_the_caller_has_switched_on_changes_no_number(context: Any) -> None:
    outside = measured(network(), in_batches(X, Y))
    with context():
        inside = measured(network(), in_batches(X, Y))
    assert inside.bp_grad_norms == outside.bp_grad_norms


def test_another_default_device_changes_no_number() -> None:
    outside = measured(network(), in_batches(X, Y))
    inputs = in_batches(X, Y)
    model = network()
    torch.set_default_device("meta")
    try:
        inside = measured(model, inputs)
    finally:
        torch.set_default_device(None)
    assert inside.bp_grad_norms == outside.bp_grad_norms


def test_threads_are_set_and_put_back() -> None:
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    with threads(None):
        assert torch.get_num_threads() == before
    assert torch.get_num_threads() == before
