"""The task of a network: its loss, its output error e_i = ∂ℓ_i/∂outputs_i, and its score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ..judge.errors import AuditError
from .copies import InFloat64
from .vectors import column, row_norms

Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES = {"ce": "cross-entropy", "mse": "squared error", "bce": "binary cross-entropy"}
FITTING = {"classes": ("ce", "mse", "bce"), "regression": ("mse",), "tokens": ("ce",)}
"""The kinds of tasks, and the losses that each can have beside a function, the usual one first."""
IGNORED = -100
"""The target of a token that counts for nothing."""
GROUPS, TARGETS = 30, 256
"""How many of the most frequent tokens are groups of (c), and targets of linear probes."""


@dataclass(frozen=True, eq=False)
class OutputError:
    """Unit vectors along e_i and the norms ‖e_i‖, in float64: neither cancels nor underflows.

    Samples do not interact, so the gradient of sample i is ‖e_i‖ times what the unit vector gives:
    the network carries numbers of ordinary size back, however confident the sample is.
    """

    units: Tensor
    norms: Tensor

    @property
    def whole(self) -> Tensor:
        """The errors themselves."""
        return self.units * column(self.norms, self.units)


@dataclass(frozen=True, eq=False)
class Task:
    """What a network was trained to do, by which loss: ``ce``, ``mse``, ``bce`` or a function.

    A function of (outputs, y) gives one value per sample. ``told`` adds what targets and outputs
    tell. Everything else takes outputs as ``read`` gives them, and targets as the data has them.

    >>> Task().losses(torch.zeros(1, 4), torch.tensor([2]))
    tensor([1.3863])
    """

    kind: str | None = None
    """``classes``, ``regression`` or ``tokens``; else the targets tell it."""
    loss: str | Loss | None = None
    shape: tuple[int, ...] | None = None
    """Of one sample's outputs as the network returns them, where they are read in another form."""
    bound: float = 0.0
    """What one output is compared with: above it, the sample is of class 1."""
    scale: float = 1.0
    """√V of regression: outputs and targets are measured in it."""
    axis: Tensor = field(default_factory=lambda: torch.ones(1, 1))
    """The first principal component of the targets of regression."""
    edges: Tensor = field(default_factory=lambda: torch.empty(0))
    """The deciles along it."""
    ranks: Tensor = field(default_factory=lambda: torch.empty(0))
    """Of every token its place among the 256 most frequent targets, or −1."""
    remark: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.loss, str) and self.loss not in LOSSES:
            names = ", ".join(LOSSES)
            raise AuditError(f"loss {self.loss!r}; expected {names} or package.module:function")
        if self.kind is not None and self.kind not in FITTING:
            raise AuditError(f"task {self.kind!r}; expected one of {', '.join(FITTING)}")

    @property
    def assumed(self) -> bool:
        """Whether the loss is the usual one of the task since none was given."""
        return self.loss is None

    @property
    def key(self) -> str | Loss:
        """The loss, given or usual."""
        return self.loss or FITTING[self.kind or "classes"][0]

    @property
    def name(self) -> str:
        """What a report calls the loss."""
        return LOSSES[self.key] if isinstance(self.key, str) else name_of(self.key)

    def told(self, y: Tensor, outputs: Tensor) -> Task:
        """This task as all targets and the first outputs tell it; an error where they do not."""
        got = f"targets of shape {tuple(y.shape)} ({y.dtype})".replace("torch.", "")
        bits, one = bool(((y == 0) | (y == 1)).all()), outputs.numel() == len(outputs)
        rows = bits and y.ndim == outputs.ndim == 2 and y.shape[1] > 1
        binary = bits and one and y.numel() == len(y)
        kind = "regression" if y.is_floating_point() else "tokens" if y.ndim == 2 else "classes"
        kind = self.kind or ("classes" if rows or binary else kind)
        if isinstance(self.loss, str) and self.loss not in FITTING[kind]:
            expected = " or ".join([*FITTING[kind], "a function"])
            raise AuditError(f"the loss is {self.loss} for the task {kind}; expected {expected}")
        made = replace(self, kind=kind)
        if kind == "tokens":
            if y.is_floating_point() or y.ndim != 2:
                raise AuditError(f"{got}; tokens are whole numbers [B, T]")
            counts = torch.bincount(y[y != IGNORED].flatten().cpu())
            order = counts.argsort(descending=True, stable=True)[:TARGETS]
            ranks = torch.full((outputs.shape[-1],), -1)
            frequent = order[counts[order] > 0]
            if len(frequent) < 2 or len(counts) > len(ranks):
                raise AuditError(
                    f"{len(frequent)} targets of tokens up to {len(counts) - 1}; expected two or "
                    f"more, below the {len(ranks)} outputs"
                )
            ranks[frequent] = torch.arange(len(frequent))
            return replace(made, ranks=ranks)
        if kind == "regression":
            values = y.reshape(len(y), -1).double().cpu()
            centred = values - values.mean(0)
            scale = float(centred.square().sum(1).mean().sqrt())
            if not scale > 0:
                raise AuditError("all targets are the same, so R² is not defined")
            axis = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1:]
            along = (values @ axis).flatten() / scale
            edges = torch.unique(torch.quantile(along, torch.arange(1, 10).to(along) / 10))
            shape = tuple(outputs.shape[1:])
            return replace(made, scale=scale, axis=axis, edges=edges, shape=shape)
        if rows and not bool((y.sum(1) == 1).all()):
            raise AuditError(
                "several labels per sample are not supported; audit one label at a time: one "
                "column of y, and --fa-forward that returns its logit"
            )
        if binary:
            limited = bool(((outputs >= 0) & (outputs <= 1)).all())
            bound = 0.5 if self.loss == "mse" or (callable(self.loss) and limited) else 0.0
            return replace(made, shape=tuple(outputs.shape[1:]), bound=bound)
        if not rows and (y.is_floating_point() or y.ndim != 1):
            raise AuditError(
                f"{got}; expected one class index per sample as a whole number, or its one-hot row"
            )
        return replace(made, remark="targets are one-hot rows, taken as classes" if rows else "")

    def read(self, outputs: Tensor) -> Tensor:
        """The outputs of a network in one form: logits, or values in units of √V.

        One logit o becomes (0, o); one value that is compared with 0 and 1 becomes (½, o).
        """
        if self.shape is None:
            return outputs
        rows = outputs.reshape(len(outputs), -1)
        if self.kind == "regression":
            return rows / self.scale
        return torch.cat([torch.full_like(rows, self.bound), rows], 1)

    def written(self, outputs: Tensor) -> Tensor:
        """Outputs in the form in which the network returns them."""
        if self.shape is None:
            return outputs
        own = outputs * self.scale if self.kind == "regression" else outputs[:, 1]
        return own.reshape(-1, *self.shape)

    def written_error(self, error: Tensor) -> Tensor:
        """∂ℓ_i/∂outputs_i in that form, at least one of each sample."""
        written = self.written(error) / self.scale**2
        return written.unsqueeze(1) if written.ndim == 1 else written

    def targets(self, y: Tensor) -> Tensor:
        """Class indices, token ids, or values in units of √V, ``[B, k]``."""
        if self.kind == "regression":
            return y.reshape(len(y), -1).double() / self.scale
        if bool(((y < 0) & ((y != IGNORED) | (self.kind != "tokens"))).any()):
            raise AuditError(f"a label is {int(y.min())}; classes and tokens run from 0 on")
        if self.kind != "tokens" and y.ndim == 2:
            y = y.argmax(1) if y.shape[1] > 1 else y.flatten()
        return y.long()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample."""
        loss, t = self.key, self.targets(y)
        try:
            if callable(loss):
                own = self.written(outputs)
                try:
                    losses = loss(own, y)
                except RuntimeError:  # it may hold float32 tensors, such as class weights
                    with InFloat64():
                        losses = loss(own, y)
            elif loss == "ce":
                losses = F.cross_entropy(outputs.movedim(-1, 1), t, reduction="none")
                losses = losses.sum(1) if t.ndim == 2 else losses
            else:
                own, goal = self._compared(outputs, t)
                apart = F.binary_cross_entropy_with_logits if loss == "bce" else F.mse_loss
                losses = apart(own, goal, reduction="none").sum(1)
        except Exception as error:
            said = f"outputs {tuple(outputs.shape)}: {type(error).__name__}: {error}"
            raise AuditError(f"the loss failed on {said}") from error
        kind = type(losses).__name__
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else kind
        if got != f"shape ({len(y)},)":
            raise AuditError(
                f"the loss returned {got} for {len(y)} samples; expected one number per sample "
                "(reduction='none', summed over outputs)"
            )
        return losses

    def _compared(self, outputs: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs that squared error and binary cross-entropy compare, and what with."""
        if self.kind == "regression":
            return outputs, t.to(outputs)
        if self.shape is not None:
            return outputs[:, 1:], t.unsqueeze(1).to(outputs)
        return outputs, F.one_hot(t, outputs.shape[1]).to(outputs)

    def error(self, outputs: Tensor, y: Tensor) -> OutputError:
        """The output error of each sample."""
        wide, loss = outputs.detach().double(), self.key
        if loss == "ce":
            # softmax − one-hot; p_y − 1 is minus the sum of the others, relative to the largest.
            t = self.targets(y).unsqueeze(-1)
            label, counts = t.clamp_min(0), t != IGNORED
            others = F.log_softmax(wide, -1).scatter(-1, label, -torch.inf)
            others = torch.where(counts, others, -torch.inf)
            largest = column(others.flatten(1).amax(1), wide)
            largest = largest.clamp_min(torch.finfo(wide.dtype).min)  # no token may count
            relative = torch.exp(others - largest)
            error = relative.scatter(-1, label, -relative.sum(-1, keepdim=True))
            return _split(error, torch.exp(largest))
        if loss == "bce":  # σ(o) − t without cancellation
            own, goal = self._compared(wide, self.targets(y))
            error = (1 - 2 * goal) * torch.sigmoid((1 - 2 * goal) * own)
            return _split(F.pad(error, (wide.shape[1] - own.shape[1], 0)))
        with torch.enable_grad():
            losses = self.losses(wide.requires_grad_(), y)
            gradient = (
                torch.autograd.grad(losses.sum(), wide, allow_unused=True)[0]
                if losses.requires_grad
                else None
            )
        if gradient is None:
            raise AuditError("the loss cannot be differentiated: it does not depend on the outputs")
        return _split(gradient)

    def predicted(self, outputs: Tensor) -> Tensor:
        """The class, token or value that the outputs of each sample stand for."""
        return outputs.double() if self.kind == "regression" else outputs.argmax(-1)

    def scores(self, outputs: Tensor, y: Tensor) -> Tensor:
        """1 where a class or token is right, c_i of regression; 0 where outputs are not finite."""
        t, finite = self.targets(y), torch.isfinite(outputs).all(-1)
        if self.kind != "regression":
            return ((outputs.argmax(-1) == t) & finite).double()
        return torch.where(finite, 1 - (self.predicted(outputs) - t).square().sum(1), 0.0)

    def groups(self, values: Tensor) -> Tensor:
        """The groups of (c) of targets or predictions; −1 for tokens that are in none."""
        if self.kind == "regression":
            return torch.bucketize((values @ self.axis.to(values)).flatten(), self.edges.to(values))
        if self.kind != "tokens":
            return values
        ranks = self.ranks.to(values.device)[values.clamp_min(0)]
        return torch.where((values < 0) | (ranks >= GROUPS), -1, ranks)

    def check(self, outputs: Tensor, y: Tensor) -> None:
        """An error where these are not the outputs of these samples."""
        shape, t = tuple(outputs.shape), self.targets(y)
        last = () if self.kind == "regression" else ("classes",)
        if outputs.ndim != t.ndim + len(last) or shape[: t.ndim] != t.shape:
            said = ", ".join(map(str, (*t.shape, *last)))
            raise AuditError(f"the network returned shape {shape}; expected [{said}]")
        if self.kind == "classes" and shape[-1] == 1:
            raise AuditError(
                "whole-number targets are taken as classes, but the network has 1 output; for "
                "regression add --fa-task=regression"
            )
        if self.kind != "regression" and int(t.max()) >= shape[-1]:
            raise AuditError(
                f"label {int(t.max())} is out of range: the network has {shape[-1]} outputs, "
                f"so labels run from 0 to {shape[-1] - 1}"
            )

    def refuse_probabilities(self) -> None:
        """An error where the loss, assumed or bce, takes logits: all outputs lie in [0, 1]."""
        if self.kind in (None, "classes") and self.loss in (None, "bce"):
            raise AuditError(
                "these are probabilities: every output lies in [0, 1], and ce and bce take logits; "
                "audit the network without its last sigmoid or softmax, or give --fa-loss (loss=) "
                "as the function it was trained with (mse if by squared error)"
            )


def name_of(function: object) -> str:
    """What a report calls a function that no option names."""
    return str(getattr(function, "__qualname__", type(function).__name__))


def _split(error: Tensor, size: Tensor | float = 1.0) -> OutputError:
    """Errors, given relative to a size, as unit vectors and norms."""
    norms = column(row_norms(error.flatten(1)), error)
    units = torch.where(norms == 0, 0.0, error / norms)
    return OutputError(units, (size * norms).flatten())
