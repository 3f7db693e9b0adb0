"""The task of a network: its loss, its output error e_i = ∂ℓ_i/∂outputs_i, and its score."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..judge.errors import AuditError
from .copies import InFloat64
from .vectors import column, row_norms

Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES = {"ce": "cross-entropy", "mse": "squared error", "bce": "binary cross-entropy"}
MODULES = {nn.CrossEntropyLoss: "ce", nn.MSELoss: "mse", nn.BCEWithLogitsLoss: "bce"}
LARGEST_LABEL = 10_000_000
"""Above it, memory is not spent on counting classes."""
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

    A function of (outputs, y) gives one value per sample. ``inferred`` adds what targets and
    outputs tell. Everything else takes outputs as ``read`` gives them, and targets as the data has
    them.

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
        loss = self.loss
        if isinstance(loss, type) and issubclass(loss, nn.Module):
            loss = loss()
        if isinstance(loss, nn.Module):
            object.__setattr__(self, "loss", _loss_of_module(loss))
        if self.loss is not None and not callable(self.loss) and self.loss not in LOSSES:
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

    def inferred(self, y: Tensor, outputs: Tensor) -> Task:
        """This task as all targets and the first outputs tell it; an error where they do not."""
        kind = self.kind or _kind_of(y, outputs)
        if isinstance(self.loss, str) and self.loss not in FITTING[kind]:
            expected = " or ".join([*FITTING[kind], "a function"])
            raise AuditError(f"the loss is {self.loss} for the task {kind}; expected {expected}")
        task = replace(self, kind=kind)
        if kind == "tokens":
            return task._of_tokens(y, outputs.shape[-1])
        if kind == "regression":
            return task._of_values(y, outputs)
        return task._of_classes(y, outputs)

    def _of_tokens(self, y: Tensor, vocabulary: int) -> Task:
        """With the ranks of the most frequent tokens."""
        if y.is_floating_point() or y.ndim != 2:
            raise AuditError(f"{_described(y)}; tokens are whole numbers [B, T]")
        counts = torch.bincount(y[y != IGNORED].flatten().cpu())
        order = counts.argsort(descending=True, stable=True)[:TARGETS]
        frequent = order[counts[order] > 0]
        if len(frequent) < 2 or len(counts) > vocabulary:
            raise AuditError(
                f"{len(frequent)} targets of tokens up to {len(counts) - 1}; expected two or "
                f"more, below the {vocabulary} outputs"
            )
        ranks = torch.full((vocabulary,), -1)
        ranks[frequent] = torch.arange(len(frequent))
        return replace(self, ranks=ranks)

    def _of_values(self, y: Tensor, outputs: Tensor) -> Task:
        """With the spread of the values, and the deciles along their first component."""
        values = y.reshape(len(y), -1).double().cpu()
        centred = values - values.mean(0)
        scale = float(centred.square().sum(1).mean().sqrt())
        if not scale > 0:
            raise AuditError("all targets are the same, so R² is not defined")
        axis = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -1:]
        along = (values @ axis).flatten() / scale
        edges = torch.unique(torch.quantile(along, torch.arange(1, 10).to(along) / 10))
        return replace(self, scale=scale, axis=axis, edges=edges, shape=tuple(outputs.shape[1:]))

    def _of_classes(self, y: Tensor, outputs: Tensor) -> Task:
        """With the form of the outputs, where it is one number, and a remark on one-hot rows."""
        is_rows = _are_rows_of_bits(y, outputs)
        if is_rows and not bool((y.sum(1) == 1).all()):
            raise AuditError(
                "several labels per sample are not supported; audit one label at a time: one "
                "column of y, and --fa-forward that returns its logit"
            )
        if _is_binary(y, outputs):
            has_shares = callable(self.loss) and bool(((outputs >= 0) & (outputs <= 1)).all())
            bound = 0.5 if self.loss == "mse" or has_shares else 0.0
            return replace(self, shape=tuple(outputs.shape[1:]), bound=bound)
        if is_rows:
            return replace(self, remark="targets are one-hot rows, taken as classes")
        if y.is_floating_point() or y.ndim != 1:
            raise AuditError(
                f"{_described(y)}; expected one class index per sample as a whole number, or its "
                "one-hot row"
            )
        return self

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
        if self.kind == "regression":
            return (outputs * self.scale).reshape(-1, *self.shape)
        return outputs[:, 1].reshape(-1, *self.shape)

    def written_error(self, error: Tensor) -> Tensor:
        """∂ℓ_i/∂outputs_i in that form, at least one of each sample."""
        written = self.written(error) / self.scale**2
        return written.unsqueeze(1) if written.ndim == 1 else written

    def targets(self, y: Tensor) -> Tensor:
        """Class indices, token ids, or values in units of √V, ``[B, k]``."""
        if self.kind == "regression":
            return y.reshape(len(y), -1).double() / self.scale
        negative = y < 0
        if self.kind == "tokens":
            negative &= y != IGNORED
        if bool(negative.any()):
            raise AuditError(f"a label is {int(y.min())}; classes and tokens run from 0 on")
        if bool((y > LARGEST_LABEL).any()):
            raise AuditError(
                f"a label is {int(y.max())}; there are at most {LARGEST_LABEL:,} classes"
            )
        if self.kind == "tokens" or y.ndim == 1:
            return y.long()
        if y.shape[1] > 1:
            return y.argmax(1)
        return y.flatten().long()

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each sample."""
        targets = self.targets(y)
        try:
            losses = self._losses(outputs, y, targets)
        except Exception as error:
            failure = f"outputs {tuple(outputs.shape)}: {type(error).__name__}: {error}"
            raise AuditError(f"the loss failed on {failure}") from error
        returned = type(losses).__name__
        if isinstance(losses, Tensor):
            if losses.shape == (len(y),):
                return losses
            returned = f"shape {tuple(losses.shape)}"
        raise AuditError(
            f"the loss returned {returned} for {len(y)} samples; expected one number per sample "
            "(reduction='none', summed over outputs)"
        )

    def _losses(self, outputs: Tensor, y: Tensor, targets: Tensor) -> Any:
        """What the loss returns."""
        if callable(self.key):
            written = self.written(outputs)
            try:
                return self.key(written, y)
            except RuntimeError:  # it may hold float32 tensors, such as class weights
                with InFloat64():
                    return self.key(written, y)
        if self.key == "ce":
            losses = F.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
            return losses.sum(1) if losses.ndim == 2 else losses
        compared, goals = self._compared(outputs, targets)
        if self.key == "bce":
            by_output = F.binary_cross_entropy_with_logits(compared, goals, reduction="none")
        else:
            by_output = F.mse_loss(compared, goals, reduction="none")
        return by_output.sum(1)

    def _compared(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs that squared error and binary cross-entropy compare, and what with."""
        if self.kind == "regression":
            return outputs, targets.to(outputs)
        if self.shape is not None:
            return outputs[:, 1:], targets.unsqueeze(1).to(outputs)
        return outputs, torch.zeros_like(outputs).scatter_(1, targets.unsqueeze(1), 1.0)

    def error(self, outputs: Tensor, y: Tensor) -> OutputError:
        """The output error of each sample."""
        wide = outputs.detach().double()
        if self.key == "ce":
            return _cross_entropy_error(wide, self.targets(y))
        if self.key in ("bce", "mse"):
            compared, goals = self._compared(wide, self.targets(y))
            error = 2 * (compared - goals)
            if self.key == "bce":  # σ(o) − t without cancellation
                signs = 1 - 2 * goals
                error = signs * torch.sigmoid(signs * compared)
            return _split(F.pad(error, (wide.shape[1] - compared.shape[1], 0)))
        with torch.enable_grad():
            losses = self.losses(wide.requires_grad_(), y)
            gradient = None
            if losses.requires_grad:
                (gradient,) = torch.autograd.grad(losses.sum(), wide, allow_unused=True)
        if gradient is None:
            raise AuditError("the loss cannot be differentiated: it does not depend on the outputs")
        return _split(gradient)

    def predicted(self, outputs: Tensor) -> Tensor:
        """The class, token or value that the outputs of each sample stand for."""
        return outputs.double() if self.kind == "regression" else outputs.argmax(-1)

    def scores(self, outputs: Tensor, y: Tensor) -> Tensor:
        """1 where a class or token is right, c_i of regression; 0 where outputs are not finite."""
        targets = self.targets(y)
        finite = torch.isfinite(outputs).all(-1)
        if self.kind != "regression":
            return ((outputs.argmax(-1) == targets) & finite).double()
        squared_errors = (self.predicted(outputs) - targets).square().sum(1)
        return torch.where(finite, 1 - squared_errors, 0.0)

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
        targets = self.targets(y)
        shape = tuple(outputs.shape)
        expected = [str(size) for size in targets.shape]
        if self.kind != "regression":
            expected.append("classes")
        if len(shape) != len(expected) or shape[: targets.ndim] != targets.shape:
            raise AuditError(
                f"the network returned shape {shape}; expected [{', '.join(expected)}]"
            )
        if self.kind == "regression":
            return
        if self.kind == "classes" and shape[-1] == 1:
            raise AuditError(
                "whole-number targets are taken as classes, but the network has 1 output; for "
                "regression add --fa-task=regression"
            )
        if int(targets.max()) >= shape[-1]:
            raise AuditError(
                f"label {int(targets.max())} is out of range: the network has {shape[-1]} outputs, "
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
    if isinstance(function, partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", type(function).__name__))


def _loss_of_module(module: nn.Module) -> str | Loss:
    """A loss of torch.nn by its name where it is plain, else as a function; however it reduces."""
    weights = [getattr(module, name, None) for name in ("weight", "pos_weight")]
    is_plain = weights == [None, None] and not getattr(module, "label_smoothing", 0.0)
    if type(module) in MODULES and is_plain:
        return MODULES[type(module)]
    if not hasattr(module, "reduction"):
        return module
    by_sample: Any = copy.deepcopy(module)
    by_sample.reduction = "none"

    def losses(outputs: Tensor, y: Tensor) -> Tensor:
        values: Tensor = by_sample(outputs, y)
        return values.reshape(len(y), -1).sum(1)

    losses.__qualname__ = type(module).__name__
    return losses


def _kind_of(y: Tensor, outputs: Tensor) -> str:
    """The task that targets of this form tell."""
    if _are_rows_of_bits(y, outputs) or _is_binary(y, outputs):
        return "classes"
    if y.is_floating_point():
        return "regression"
    if y.ndim == 2:
        return "tokens"
    return "classes"


def _holds_bits(y: Tensor) -> bool:
    return bool(((y == 0) | (y == 1)).all())


def _are_rows_of_bits(y: Tensor, outputs: Tensor) -> bool:
    """Whether targets may be one-hot rows: of 0 and 1, one for each of several outputs."""
    return y.ndim == outputs.ndim == 2 and y.shape[1] > 1 and _holds_bits(y)


def _is_binary(y: Tensor, outputs: Tensor) -> bool:
    """Whether one output a sample stands for 0 or 1."""
    return outputs.numel() == len(outputs) and y.numel() == len(y) and _holds_bits(y)


def _described(y: Tensor) -> str:
    return f"targets of shape {tuple(y.shape)} ({y.dtype})".replace("torch.", "")


def _cross_entropy_error(outputs: Tensor, targets: Tensor) -> OutputError:
    """softmax − one-hot; p_y − 1 is minus the sum of the other shares, relative to the largest."""
    targets = targets.unsqueeze(-1)
    labels = targets.clamp_min(0)
    shares = F.log_softmax(outputs, -1).scatter_(-1, labels, -torch.inf)
    shares.masked_fill_(targets == IGNORED, -torch.inf)
    largest = column(shares.flatten(1).amax(1), outputs)
    largest = largest.clamp_min(torch.finfo(outputs.dtype).min)  # no token may count
    relative = shares.sub_(largest).exp_()
    error = relative.scatter_(-1, labels, -relative.sum(-1, keepdim=True))
    return _split(error, torch.exp(largest))


def _split(error: Tensor, size: Tensor | float = 1.0) -> OutputError:
    """Errors, given relative to a size, as unit vectors, in their place, and norms."""
    norms = column(row_norms(error.flatten(1)), error)
    units = error.div_(norms).masked_fill_(norms == 0, 0.0)
    return OutputError(units, (size * norms).flatten())
