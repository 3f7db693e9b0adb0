"""What was compiled is audited as its authors wrote it; what is no Python any more is refused with a sentence."""

from __future__ import annotations

import pytest
import torch
from own_backwards import CASES, Net, made
from support import clustered, in_batches
from torch import Tensor, nn
from torch.nn import functional as F

from pytest_fadiag import AuditError, measure

X, Y = clustered(256)


def test_compiled_networks_modules_and_functions_measure_as_before_and_are_compiled_afterwards() -> None:
    """With the backend that compiles nothing: it is the wrapping that counts, and a compiler takes a minute."""
    plain, net = (made(CASES["feedback alignment"]) for _ in range(2))
    expected = measure(plain, in_batches(X, Y), observers=["gradients", "reference"])
    block = net.blocks[1] = torch.compile(net.blocks[1], backend="eager")  # type: ignore[assignment]
    net.blocks[2].compile(backend="eager")
    call = net.blocks[2]._compiled_call_impl
    for network in (net, torch.compile(net, backend="eager")):
        measured = measure(network, in_batches(X, Y), observers=["gradients", "reference"])
        assert measured.bp_grad_norms == expected.bp_grad_norms
        assert measured.reference == expected.reference
        assert net.blocks[1] is block
        assert net.blocks[2]._compiled_call_impl is call

    detaching = torch.compile(lambda z: F.gelu(z.detach()), backend="eager")
    inside = made(lambda: Net(act=lambda module, z: detaching(z)))
    found = measure(inside, in_batches(X, Y), observers=["gradients"]).bp_grad_norms
    assert found == measure(made(Net), in_batches(X, Y), observers=["gradients"]).bp_grad_norms


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_is_refused_where_states_are_needed() -> None:
    traced = torch.jit.trace(made(Net).eval(), X[:3])
    with pytest.raises(AuditError, match=r"the network is TorchScript, of which neither .* audit the Python module that was"):
        measure(traced, in_batches(X, Y))
    alone = [measure(model, in_batches(X, Y), observers=["accuracy"]).accuracy for model in (traced, made(Net))]
    assert alone[0] == alone[1]
    part = made(Net)
    part.blocks[1].ln = torch.jit.script(part.blocks[1].ln)  # type: ignore[assignment]
    with pytest.raises(AuditError, match=r"its module 'blocks.1.ln' is TorchScript"):
        measure(part, in_batches(X, Y))


def test_what_a_forward_leaves_on_its_modules_is_gone_afterwards() -> None:
    def kept(module: nn.Module, z: Tensor) -> Tensor:
        module.last, module.seen = z.detach(), getattr(module, "seen", 0) + 1  # type: ignore[assignment]
        return F.gelu(z)

    net = made(lambda: Net(act=kept))
    net.blocks[0].last = "mine"  # type: ignore[assignment]
    measure(net, in_batches(X, Y))
    assert net.blocks[0].last == "mine"
    assert not any(hasattr(block, "seen") for block in net.blocks)
    assert not hasattr(net.blocks[1], "last")
