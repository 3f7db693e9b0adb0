"""The task of a network: its loss, its output error e_i = ∂ℓ_i/∂outputs_i, and what is a hit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..judge.errors import AuditError
from .vectors import row_norms, wide_dtype

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class OutputError:
    """Unit vectors along e_i and the norms ‖e_i‖, in float64: neither cancels nor underflows.

    Samples do not interact, so the gradient of sample i is ‖e_i‖ times what the unit vector gives:
    the network carries numbers of ordinary size back, however confident the sample is.
    """

    units: Tensor
    norms: Tensor


@dataclass(frozen=True)
class Task:
    """Classes by cross-entropy, or by an own loss: a function of (outputs, y), a value per sample.

    >>> Task().losses(torch.zeros(1, 4), torch.tensor([2]))
    tensor([1.3863])
    """

    loss: Loss | None = None

    @property
    def name(self) -> str:
        """What a report calls the loss."""
        return (
            "cross-entropy"
            if self.loss is None
            else str(getattr(self.loss, "__qualname__", type(self.loss).__name__))
        )

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample."""
        try:
            losses = (
                F.cross_entropy(outputs, y, reduction="none")
                if self.loss is None
                else self.loss(outputs, y)
            )
        except Exception as error:
            said = f"outputs {tuple(outputs.shape)}: {type(error).__name__}: {error}"
            raise AuditError(f"the loss failed on {said}") from error
        if not isinstance(losses, Tensor) or losses.shape != y.shape:
            got = (
                f"shape {tuple(losses.shape)}"
                if isinstance(losses, Tensor)
                else type(losses).__name__
            )
            raise AuditError(
                f"the loss returned {got} for {len(y)} samples; expected one number per sample "
                "(reduction='none', summed over outputs)"
            )
        return losses

    def error(self, outputs: Tensor, y: Tensor) -> OutputError:
        """The output error of each sample."""
        wide = outputs.detach().to(wide_dtype(outputs))
        if self.loss is None:
            # softmax − one-hot; p_y − 1 is minus the sum of the others, relative to the largest.
            others = F.log_softmax(wide, 1).scatter(1, y.unsqueeze(1), -torch.inf)
            largest = others.amax(1, keepdim=True)
            relative = torch.exp(others - largest)
            error = relative.scatter(1, y.unsqueeze(1), -relative.sum(1, keepdim=True))
            norms = row_norms(error).unsqueeze(1)
            return OutputError(error / norms, (torch.exp(largest) * norms).squeeze(1))
        with torch.enable_grad():
            leaf = wide.requires_grad_()
            try:
                losses = self.losses(leaf, y)
            except AuditError:  # it may hold float32 tensors, such as class weights
                leaf = outputs.detach().clone().requires_grad_()
                losses = self.losses(leaf, y)
            gradient = (
                torch.autograd.grad(losses.sum(), leaf, allow_unused=True)[0]
                if losses.requires_grad
                else None
            )
        if gradient is None:
            raise AuditError("the loss cannot be differentiated: it does not depend on the outputs")
        norms = row_norms(gradient.to(wide.dtype)).unsqueeze(1)
        return OutputError(torch.where(norms == 0, 0.0, gradient / norms), norms.squeeze(1))

    def hits(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Which samples are classified correctly; one whose outputs are not finite is not."""
        return (outputs.argmax(1) == y) & torch.isfinite(outputs).all(1)

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """An error where these are not the logits of these samples."""
        shape, wide = tuple(outputs.shape), outputs.to(wide_dtype(outputs))
        if outputs.ndim != 2 or len(outputs) != len(y):
            raise AuditError(f"the network returned shape {shape}; expected [{len(y)}, classes]")
        if int(y.max()) >= shape[1]:
            raise AuditError(
                f"label {int(y.max())} is out of range: the network has {shape[1]} outputs, "
                f"so labels run from 0 to {shape[1] - 1}"
            )
        sums_to_1 = bool(((wide.sum(1) - 1).abs() < 1e-4).all())
        if self.loss is None and shape[1] > 1 and sums_to_1 and bool((wide >= 0).all()):
            raise AuditError(
                "the network returns probabilities: every row is non-negative and sums to 1. "
                "Cross-entropy takes the softmax again; let forward return the logits"
            )
