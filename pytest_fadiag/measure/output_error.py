"""The output error e_i = ∂ℓ_i/∂logits_i as a direction and a size, so that neither cancels nor underflows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..judge.errors import AuditError
from .vectors import row_norms, wide_dtype

Loss = Callable[[Tensor, Tensor], Tensor]


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The loss of each sample, unless the user gives another."""
    return F.cross_entropy(logits, targets, reduction="none")


def output_error(logits: Tensor, targets: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """Unit vectors along e_i, and the norms ‖e_i‖, in float64.

    Samples do not interact, so the gradient of sample i is ‖e_i‖ times what the unit vector gives: the network carries numbers
    of ordinary size back, however confident the sample is, and the size is multiplied in afterwards.
    """
    if loss is cross_entropy and logits.shape[1] > 1:
        return _softmax_error(logits.detach().to(wide_dtype(logits)), targets)
    error = _differentiated(logits, targets, loss)
    norms = row_norms(error)
    return torch.where(norms.unsqueeze(1) == 0, error, error / norms.unsqueeze(1)), norms


def _softmax_error(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """softmax - one-hot with p_y - 1 written as minus the sum of the others, relative to the largest of them."""
    log_p = F.log_softmax(logits, 1)
    others = log_p.scatter(1, targets.unsqueeze(1), -torch.inf)
    largest = others.amax(1, keepdim=True)
    relative = torch.exp(others - largest)
    error = relative.scatter(1, targets.unsqueeze(1), -relative.sum(1, keepdim=True))
    norms = row_norms(error).unsqueeze(1)
    return error / norms, (torch.exp(largest) * norms).squeeze(1)


@torch.enable_grad()
def _differentiated(logits: Tensor, targets: Tensor, loss: Loss) -> Tensor:
    """∂ℓ/∂logits by autograd, in float64 unless the loss itself holds float32 tensors, such as class weights."""
    wide = logits.detach().to(wide_dtype(logits)).requires_grad_()
    narrow = logits.detach().requires_grad_()
    failure: Exception | None = None
    for leaf in (wide, narrow):
        try:
            losses = loss(leaf, targets)
        except Exception as error:
            failure = failure or error
            continue
        _check(losses, targets)
        (gradient,) = torch.autograd.grad(losses.sum(), leaf, allow_unused=True)
        if gradient is None:
            raise AuditError("no gradient of the loss reaches the logits: it does not depend on them")
        return gradient.to(wide.dtype)
    kind = f"{type(failure).__name__}: {failure}"
    raise AuditError(f"the loss failed on logits {tuple(logits.shape)}: {kind}") from failure


def _check(losses: object, targets: Tensor) -> None:
    if not isinstance(losses, Tensor) or losses.shape != targets.shape:
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
        raise AuditError(
            f"the loss returned {got} for {len(targets)} samples; it must return one number per sample "
            "(reduction='none', summed over outputs)"
        )
    if not losses.requires_grad:
        raise AuditError("the loss cannot be differentiated: it does not depend on the logits, or detaches them")
