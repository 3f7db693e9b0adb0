"""The output error against autograd in float64, own losses, and outputs that are no logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from pytest_fadiag.judge.errors import AuditError
from pytest_fadiag.measure.task import Task

Y = torch.arange(40) % 4
LOGITS = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))


def squared(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs - F.one_hot(y, outputs.shape[1])).square().sum(1)


def weighted(outputs: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(outputs, y, torch.tensor([1.0, 2.0, 3.0, 4.0]), reduction="none")


@given(st.floats(0.01, 300))
def test_the_error_is_exact_however_confident_the_sample_is(scale: float) -> None:
    """By the closed form in exact terms: p_c for the others, minus their sum for the label."""
    wide = (scale * LOGITS).double()
    error = Task().error(scale * LOGITS, Y)
    log_p = F.log_softmax(wide, 1)
    others = log_p.scatter(1, Y[:, None], -torch.inf)
    shifted = (others - others.amax(1, keepdim=True)).exp()
    expected = shifted.scatter(1, Y[:, None], -shifted.sum(1, keepdim=True))
    torch.testing.assert_close(error.units, F.normalize(expected, dim=1), rtol=1e-6, atol=1e-12)
    sizes = (others.logsumexp(1) + (expected.norm(dim=1) / shifted.sum(1)).log()).exp()
    torch.testing.assert_close(error.norms, sizes, rtol=1e-4, atol=0)


@pytest.mark.parametrize("loss", [None, squared, weighted])
def test_unit_times_size_is_the_derivative_of_the_loss(loss: Any) -> None:
    task, leaf = Task(loss=loss), LOGITS.double().requires_grad_()
    own = loss or (lambda outputs, y: F.cross_entropy(outputs, y, reduction="none"))
    leaf_of_loss = leaf if loss is not weighted else leaf.float()
    (expected,) = torch.autograd.grad(own(leaf_of_loss, Y).sum(), leaf)
    error = task.error(LOGITS, Y)
    torch.testing.assert_close(error.units * error.norms[:, None], expected, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(error.units.norm(dim=1), torch.ones(40).double())
    torch.testing.assert_close(task.losses(LOGITS, Y), own(LOGITS, Y))


def test_a_sample_without_error_has_size_0_and_no_direction() -> None:
    error = Task(loss=squared).error(F.one_hot(Y, 4).float(), Y)
    assert not error.units.any() and not error.norms.any()


LOSSES: dict[str, tuple[Callable[..., Any], str]] = {
    "mean": (F.cross_entropy, r"the loss returned shape \(\) for 40 samples; .*reduction='none'"),
    "per output": (lambda outputs, y: outputs - y[:, None], r"shape \(40, 4\) for 40 samples"),
    "nothing": (lambda outputs, y: None, "the loss returned NoneType for 40 samples"),
    "raises": (
        lambda outputs, y: 1 / 0,
        r"the loss failed on outputs \(40, 4\): ZeroDivisionError",
    ),
    "constant": (lambda outputs, y: torch.zeros(40, requires_grad=True), "does not depend"),
    "detached": (lambda outputs, y: outputs.detach().sum(1), "the loss cannot be differentiated"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_cannot_be_used_is_refused(name: str) -> None:
    loss, message = LOSSES[name]
    with pytest.raises(AuditError, match=message):
        Task(loss=loss).error(LOGITS, Y)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (LOGITS.argmax(1), r"returned shape \(40,\); expected \[40, classes\]"),
        (LOGITS[:1], r"returned shape \(1, 4\)"),
        (LOGITS[:, :3], "label 3 is out of range: the network has 3 outputs, .* from 0 to 2"),
    ],
)
def test_outputs_that_are_no_logits_are_refused(outputs: Tensor, message: str) -> None:
    with pytest.raises(AuditError, match=message):
        Task().check(outputs, Y)


def test_labels_below_zero_are_refused() -> None:
    with pytest.raises(AuditError, match="a label is -1; classes and tokens run from 0 on"):
        Task().check(LOGITS, Y - 1)
    with pytest.raises(AuditError, match="a label is -100"):
        Task().losses(LOGITS, torch.full_like(Y, -100))


def test_logits_log_probabilities_and_probabilities_of_an_own_loss_are_taken() -> None:
    for task, outputs in (
        (Task(), LOGITS),
        (Task(), LOGITS.log_softmax(1)),
        (Task(loss=squared), LOGITS.softmax(1)),
    ):
        task.check(outputs, Y)


def test_hits_are_finite_and_losses_have_names() -> None:
    outputs = F.one_hot(Y, 4) / torch.where(Y == 0, 0, 1)[:, None]
    assert torch.equal(Task().scores(outputs, Y), (Y > 0).double())
    assert (Task().name, Task(loss=squared).name) == ("cross-entropy", "squared")
